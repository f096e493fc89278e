"""Facts that answer none of the labelled questions, in any number: the haystack of the recall benchmark."""

import itertools
import random
from collections.abc import Iterator

NAMES = "Alice Boris Carla Deniz Elif Farid Greta Hugo Ines Jonas Katja Liam Mona Nils Olga Pavel Rosa Samir"
CITIES = "Lisbon Oslo Prague Lagos Denver Kyoto Lima Perth Tunis Riga Porto Quito Busan Izmir Turin Malmo"
THINGS = "lamp drill scarf kettle tent monitor backpack printer carpet mirror ladder speaker helmet blender"
TOPICS = "logging billing search onboarding caching exports alerts invoices reports backups quotas"
TOOLS = "Redis Kafka Terraform Grafana Jenkins Figma Jira Nginx Airflow Spark Docker Sentry"
COLOURS = "red blue green yellow black white orange violet"
MONTHS = "January February April July August November"
DISHES = "soup salad pancakes dumplings curry risotto tacos pasta"

ENGLISH = (
    "Met {name} at a conference in {city}.",
    "{name} from the sales department asked about {topic}.",
    "Bought a {colour} {thing} in {city}.",
    "The {topic} service was moved to {tool} by {name}.",
    "{name} is on leave in {month}.",
    "Visited {city} with {name} for {number} days.",
    "Ticket {number} about {topic} was closed by {name}.",
    "The {thing} of {name} is {colour}.",
    "Plans to compare {tool} with another product in {month}.",
    "Ordered {dish} for the team lunch with {name}.",
    "The report on {topic} has {number} pages.",
    "{name} recommended a museum in {city}.",
    "The budget for {topic} is {number} thousand dollars.",
    "Asked for help with {tool} {number} times.",
    "{name} wrote the manual of the {topic} module.",
    "Room {number} in {city} was booked for the workshop on {topic}.",
)

PEOPLE_ZH = "王芳 李强 张敏 陈杰 杨洋 赵磊 周婷 吴昊 郑爽 孙丽 马超 朱琳 胡军 林静 何伟 郭晶"
CITIES_ZH = "武汉 南京 西安 厦门 青岛 昆明 大连 苏州 长沙 天津 郑州 合肥"
THINGS_ZH = "台灯 电钻 围巾 水壶 帐篷 显示器 背包 打印机 地毯 镜子 音箱 头盔"
TOPICS_ZH = "日志 计费 搜索 缓存 导出 告警 报表 备份 翻译 配额 权限 监控"
DISHES_ZH = "汤 沙拉 煎饼 饺子 咖喱 烩饭 面条 火锅"
MONTHS_ZH = "一月 二月 四月 七月 八月 十一月"

CHINESE = (
    "在{city}的会议上见到了{name}。",
    "销售部的{name}询问了{topic}的情况。",
    "在{city}买了一个{thing}。",
    "{name}把{topic}服务迁移到了{tool}。",
    "{name}{month}休假。",
    "和{name}在{city}玩了{number}天。",
    "关于{topic}的第{number}号工单由{name}关闭。",
    "{name}的{thing}坏了。",
    "打算{month}把{tool}和另一个产品作比较。",
    "团队午饭和{name}一起点了{dish}。",
    "{topic}的报告有{number}页。",
    "{name}推荐了{city}的一家博物馆。",
    "{topic}的预算是{number}千元。",
    "请教过{number}次{tool}的问题。",
    "{name}写了{topic}模块的手册。",
    "{city}的{number}号会议室订给了{topic}研讨会。",
)


def distractors(count: int, *, seed: int = 7) -> list[str]:
    """Return `count` different facts, half of them Chinese."""
    choose = random.Random(seed)
    halves = (_filled(ENGLISH, _english_values(), choose), _filled(CHINESE, _chinese_values(), choose))
    found: dict[str, None] = {}
    for facts in itertools.cycle(halves):
        if len(found) == count:
            return list(found)
        found.setdefault(next(facts))
    return []


def _english_values() -> dict[str, list[str]]:
    return {
        "name": NAMES.split(),
        "city": CITIES.split(),
        "thing": THINGS.split(),
        "topic": TOPICS.split(),
        "tool": TOOLS.split(),
        "colour": COLOURS.split(),
        "month": MONTHS.split(),
        "dish": DISHES.split(),
    }


def _chinese_values() -> dict[str, list[str]]:
    return {
        "name": PEOPLE_ZH.split(),
        "city": CITIES_ZH.split(),
        "thing": THINGS_ZH.split(),
        "topic": TOPICS_ZH.split(),
        "tool": TOOLS.split(),
        "month": MONTHS_ZH.split(),
        "dish": DISHES_ZH.split(),
    }


def _filled(templates: tuple[str, ...], values: dict[str, list[str]], choose: random.Random) -> Iterator[str]:
    while True:
        chosen = {key: choose.choice(options) for key, options in values.items()}
        yield choose.choice(templates).format(number=choose.randint(2, 999), **chosen)
