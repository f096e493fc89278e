"""Generated pages of many styles, each labelled with its main text and with what surrounds it.

Everything follows from the number of a page, so that all runs see the same pages.
"""

# ruff: noqa: E501 - lines of HTML and lists of words

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

SUBJECTS = [
    "The river delta",
    "The city council",
    "A group of engineers",
    "The museum",
    "An old observatory",
    "The research team",
    "The northern harbour",
    "A small bakery",
    "The national library",
    "The wind farm",
    "A retired teacher",
    "The orchestra",
]
VERBS = [
    "has measured",
    "was able to describe",
    "decided to publish",
    "will replace",
    "had to explain",
    "is going to restore",
    "wants to compare",
    "has quietly collected",
    "could not confirm",
    "was asked to review",
]
OBJECTS = [
    "the flow of water over the last century",
    "a detailed plan for the old quarter",
    "the results of the second trial",
    "more than forty letters from the archive",
    "the cost of every bridge in the region",
    "a map that shows how the coast has moved",
    "the first complete list of its members",
    "what happened during the storm",
    "the noise that people hear at night",
    "an instrument that was built by hand",
]
ENDINGS = [
    "and the work is expected to take another two years",
    "because nobody had done it before",
    "although some of the neighbours were not convinced",
    "which is why the report was read with so much interest",
    "so that the next generation can learn from it",
    "before the weather turned and the roads were closed",
    "while the budget for it has not been agreed",
    "as the committee had hoped in the spring",
]
CHINESE = (
    ("研究小组", "市图书馆", "北部港口", "老天文台", "交响乐团", "当地居民", "工程师们"),
    ("公布了", "重新测量了", "详细记录了", "比较了", "修复了", "整理了"),
    (
        "过去一百年的水流数据",
        "旧城区的改造方案",
        "第二次试验的全部结果",
        "四十多封珍贵的信件",
        "海岸线移动的地图",
    ),
    (
        "，这项工作预计还需要两年时间",
        "，因为此前没有人做过类似的尝试",
        "，不过部分居民对此表示怀疑",
        "，报告因此受到广泛关注",
    ),
)
NAV = (
    "Home",
    "World",
    "Business",
    "Technology",
    "Culture",
    "Sport",
    "Opinion",
    "Video",
    "Archive",
    "Contact us",
)
SLUGS = ("rivers", "bridges", "letters", "harbours", "maps", "storms", "music", "bread", "libraries", "wind")


@dataclass(frozen=True, slots=True)
class Block:
    """One element of a text: its kind, and its paragraphs, items, rows or lines."""

    kind: str
    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Story:
    """What a page says."""

    number: int
    title: str
    author: str
    date: str
    language: str
    intro: tuple[str, ...]
    sections: tuple[tuple[str, tuple[Block, ...]], ...]

    @property
    def units(self) -> list[str]:
        """The texts that an extraction must keep."""
        blocks = [block for _, found in self.sections for block in found]
        parts = [part for block in blocks for part in block.parts]
        cells = [cell for part in parts for cell in part.split("\t")]
        lines = [line for cell in cells for line in cell.split("\n") if line.strip()]
        return [*self.intro, *(heading for heading, _ in self.sections), *lines]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a site puts around every text."""

    nav: tuple[str, ...]
    teasers: tuple[str, ...]
    cookie: str
    newsletter: str
    footer: str
    links: tuple[str, ...]
    """The addresses of other pages."""

    @property
    def units(self) -> list[str]:
        """The texts that an extraction must lose."""
        return [*self.teasers, self.cookie, self.newsletter, self.footer]


@dataclass(frozen=True, slots=True)
class LabelledPage:
    """A page, and what of it is the main text."""

    path: str
    style: str
    title: str
    html: str
    main: tuple[str, ...]
    boilerplate: tuple[str, ...]


def labelled_pages(count: int = 100) -> list[LabelledPage]:
    """Return the pages with these numbers, in all styles in turn."""
    return [labelled_page(number, count) for number in range(count)]


def labelled_page(number: int, count: int = 100) -> LabelledPage:
    names = list(STYLES)
    style = names[number % len(names)]
    story, around = story_of(number, chinese=style == "chinese"), surroundings_of(number, count)
    html = STYLES[style](story, around)
    return LabelledPage(page_path(number), style, story.title, html, tuple(story.units), tuple(around.units))


def page_path(number: int) -> str:
    return f"/{SLUGS[number % len(SLUGS)]}/{number}.html"


def kept_share(units: Sequence[str], text: str) -> float:
    """Return the share of the characters of `units` that are in `text`, whatever its markup."""
    whole = _plain(re.sub(r"\]\([^)\s]*\)", "] ", text))
    sizes = [(len(plain), plain in whole) for unit in units if (plain := _plain(unit))]
    return sum(size for size, is_in in sizes if is_in) / sum(size for size, _ in sizes)


def _plain(text: str) -> str:
    return re.sub(r"[\W_]+", "", text).casefold()


def story_of(number: int, *, chinese: bool = False) -> Story:
    dice = random.Random(number)
    say = _chinese if chinese else _english

    def sentences(least: int, most: int) -> str:
        return ("" if chinese else " ").join(say(dice) for _ in range(dice.randint(least, most)))

    def block() -> Block:
        match dice.choice(("p", "p", "p", "ul", "ol", "table", "code", "quote")):
            case "table":
                rows = [f"{say(dice)[:30].strip()} {n}\t{dice.randint(100, 99999)} units" for n in range(4)]
                return Block("table", (f"Name of part {number}\tMeasured value", *rows))
            case "code":
                name = f"measure_{dice.randint(10, 99)}_{number}"
                return Block(
                    "code",
                    (f"def {name}(value):\n    total = value * {dice.randint(2, 9)}\n\n    return total",),
                )
            case "ul" | "ol" as kind:
                return Block(kind, tuple(say(dice) for _ in range(dice.randint(3, 5))))
            case "quote":
                return Block("quote", (sentences(1, 2),))
            case _:
                return Block("p", tuple(sentences(2, 4) for _ in range(dice.randint(1, 3))))

    title = f"{say(dice)[:60].strip('，。 ')} {number}"
    headings = (
        ("背景介绍", "具体结果", "后续计划", "数据说明")
        if chinese
        else ("How it began", "What was found", "The costs", "What comes next")
    )
    return Story(
        number=number,
        title=title,
        author="王小明" if chinese else f"Robin Field{number}",
        date=f"2026-{number % 9 + 1:02}-{number % 27 + 1:02}",
        language="zh" if chinese else "en",
        intro=tuple(sentences(2, 4) for _ in range(2)),
        sections=tuple(
            (f"{heading} {number}", (Block("p", (sentences(2, 4),)), block(), block()))
            for heading in headings
        ),
    )


def surroundings_of(number: int, count: int) -> Surroundings:
    dice = random.Random(number + 10_000)
    others = [dice.randrange(count) for _ in range(10)]
    teasers = tuple(
        f"Read next: {dice.choice(SUBJECTS).lower()} in pictures, part {other + 500}" for other in others[:6]
    )
    return Surroundings(
        nav=NAV,
        teasers=teasers,
        cookie=f"We use cookies and similar technologies to give you the best experience on our site {number}.",
        newsletter=f"Sign up for our weekly newsletter number {number} and never miss another headline.",
        footer=f"Copyright 2026 Example Media Group {number}. All rights reserved. Terms of use and privacy policy.",
        links=tuple(page_path(other) for other in others),
    )


def _english(dice: random.Random) -> str:
    number = dice.randint(3, 980)
    return (
        f"{dice.choice(SUBJECTS)} {dice.choice(VERBS)} {dice.choice(OBJECTS)}, {number} pages in all, "
        f"{dice.choice(ENDINGS)}."
    )


def _chinese(dice: random.Random) -> str:
    return "".join(dice.choice(words) for words in CHINESE) + f"，共计{dice.randint(3, 980)}页。"


def _body(story: Story, *, heading: str = "h2", paragraph: str = "p") -> str:
    parts = [f"<{paragraph}>{escape(text)}</{paragraph}>" for text in story.intro]
    for name, blocks in story.sections:
        parts += [f"<{heading}>{escape(name)}</{heading}>", *(_block(block, paragraph) for block in blocks)]
    return "\n".join(parts)


def _block(block: Block, paragraph: str = "p") -> str:
    texts = [escape(part) for part in block.parts]
    match block.kind:
        case "table":
            head, *rows = [text.split("\t") for text in texts]
            first = "".join(f"<th>{cell}</th>" for cell in head)
            others = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
            return f"<table><thead><tr>{first}</tr></thead><tbody>{others}</tbody></table>"
        case "code":
            return f'<pre><code class="language-python">{texts[0]}</code></pre>'
        case "ul" | "ol" as kind:
            return f"<{kind}>" + "".join(f"<li>{text}</li>" for text in texts) + f"</{kind}>"
        case "quote":
            return f"<blockquote><p>{texts[0]}</p></blockquote>"
        case _:
            return "".join(f"<{paragraph}>{text}</{paragraph}>" for text in texts)


def _nav(around: Surroundings, tag: str = "nav", name: str = "") -> str:
    pairs = zip(around.nav, around.links, strict=True)
    items = "".join(f'<li><a href="{link}">{escape(word)}</a></li>' for word, link in pairs)
    return f"<{tag}{name}><ul>{items}</ul></{tag}>"


def _teasers(around: Surroundings) -> str:
    pairs = zip(around.teasers, around.links, strict=False)
    return "".join(f'<li><a href="{link}">{escape(text)}</a></li>' for text, link in pairs)


def _head(story: Story, extra: str = "") -> str:
    return (
        f'<!doctype html><html lang="{story.language}"><head><meta charset="utf-8">'
        f"<title>{escape(story.title)} | The Example</title>"
        f'<meta name="author" content="{escape(story.author)}">'
        f'<meta property="article:published_time" content="{story.date}T08:00:00Z">{extra}</head>'
    )


def _semantic(story: Story, around: Surroundings) -> str:
    return (
        f"{_head(story)}<body><header>{_nav(around)}</header><main><article><h1>{escape(story.title)}</h1>"
        f"{_body(story)}</article></main><aside><h3>Related</h3><ul>{_teasers(around)}</ul>"
        f"<p>{around.newsletter}</p></aside><div class='cookie-banner'>{around.cookie}</div>"
        f"<footer><p>{around.footer}</p></footer></body></html>"
    )


def _divs(story: Story, around: Surroundings) -> str:
    return (
        f"{_head(story)}<body><div id='wrapper'><div class='menu'>{_nav(around, 'div')}</div>"
        f"<div class='sidebar'><ul>{_teasers(around)}</ul></div><div class='content'><h1>{escape(story.title)}</h1>"
        f"<div class='entry-content'>{_body(story)}</div></div><div class='newsletter-box'><p>{around.newsletter}"
        f"</p></div><div class='footer'><p>{around.footer}</p><p class='cookie-notice'>{around.cookie}</p></div>"
        "</div></body></html>"
    )


def _tables(story: Story, around: Surroundings) -> str:
    """Return a page laid out with tables, as before style sheets."""
    links = "<br>".join(
        f'<a href="{link}">{word}</a>' for word, link in zip(around.nav, around.links, strict=True)
    )
    more = "<br>".join(
        f'<a href="{link}">{escape(t)}</a>' for t, link in zip(around.teasers, around.links, strict=False)
    )
    return (
        f"<html><head><title>{escape(story.title)}</title></head><body bgcolor=white><table width=100%><tr>"
        f"<td colspan=2 class=header><b>The Example</b></td></tr><tr><td width=20% class=menu>{links}<br>{more}</td>"
        f"<td><h1>{escape(story.title)}</h1>{_body(story, heading='h3')}</td></tr><tr><td colspan=2 class=footer>"
        f"<font size=1>{around.footer} {around.newsletter} {around.cookie}</font></td></tr></table></body></html>"
    )


def _blog(story: Story, around: Surroundings) -> str:
    comments = "".join(f"<li class='comment'><p>{escape(text)}</p></li>" for text in around.teasers[:3])
    return (
        f"{_head(story)}<body class='single-post'><div id='page'><div id='masthead'>{_nav(around)}</div>"
        f"<div id='primary'><article class='post hentry'><header class='entry-header'><h1 class='entry-title'>"
        f"{escape(story.title)}</h1><span class='posted-on'>{story.date}</span></header><div class='entry-content'>"
        f"{_body(story)}<div class='sharedaddy'><h3>Share this:</h3><ul><li><a href='#'>Mastodon</a></li></ul></div>"
        f"</div><footer class='entry-footer'>Posted in <a href='/c'>News</a></footer></article>"
        f"<div id='comments' class='comments-area'><ol>{comments}</ol></div></div><div id='secondary' "
        f"class='widget-area'><section class='widget'><ul>{_teasers(around)}</ul></section><section class='widget'>"
        f"{around.newsletter}</section></div><footer id='colophon'>{around.footer}<div id='cookie-law-info-bar'>"
        f"{around.cookie}</div></footer></div></body></html>"
    )


def _documentation(story: Story, around: Surroundings) -> str:
    contents = "".join(
        f"<li><a href='#s{n}'>{escape(name)}</a></li>" for n, (name, _) in enumerate(story.sections)
    )
    return (
        f"{_head(story)}<body><div class='sphinxsidebar' role='navigation'><ul>{_teasers(around)}</ul></div>"
        f"<div class='navbar'>{_nav(around)}</div><div class='document'><div class='documentwrapper'><div "
        f"class='body' role='main'><section id='s'><h1>{escape(story.title)}</h1><div class='contents local'><ul>"
        f"{contents}</ul></div>{_body(story)}</section></div></div></div><div class='footer' role='contentinfo'>"
        f"{around.footer} {around.newsletter}</div><div role='dialog' class='consent'>{around.cookie}</div></body></html>"
    )


def _wiki(story: Story, around: Surroundings) -> str:
    box = "<table class='infobox'><tr><th>Type</th><td>Article</td></tr></table>"
    return (
        f"{_head(story)}<body><div id='mw-navigation'><div id='mw-panel'>{_nav(around)}<ul>{_teasers(around)}</ul>"
        f"</div></div><div id='content' class='mw-body' role='main'><h1 id='firstHeading'>{escape(story.title)}</h1>"
        f"<div id='bodyContent'><div id='mw-content-text'><div class='mw-parser-output'>{box}{_body(story)}</div></div>"
        f"</div></div><div id='footer' role='contentinfo'><ul><li>{around.footer}</li><li>{around.newsletter}</li>"
        f"<li>{around.cookie}</li></ul></div></body></html>"
    )


def _news(story: Story, around: Surroundings) -> str:
    data = f'<script type="application/ld+json">{{"@type":"NewsArticle","headline":"{story.title}"}}</script>'
    return (
        f"{_head(story, data)}<body><div class='gdpr-consent-overlay'><p>{around.cookie}</p><button>Accept</button>"
        f"</div><header class='site-header'>{_nav(around)}</header><div class='layout'><article "
        f"class='article__main'><h1>{escape(story.title)}</h1><p class='byline'>By {story.author}</p><div "
        f"class='article__body'>{_body(story)}</div><div class='related-articles'><h4>More on this story</h4><ul>"
        f"{_teasers(around)}</ul></div><div class='newsletter-signup'>{around.newsletter}</div></article></div>"
        f"<footer class='site-footer'>{around.footer}</footer></body></html>"
    )


def _question(story: Story, around: Surroundings) -> str:
    return (
        f"{_head(story)}<body><div class='topbar'>{_nav(around)}</div><div class='container'><div id='left-sidebar'>"
        f"<ul>{_teasers(around)}</ul></div><div id='mainbar' itemscope itemtype='https://schema.org/Question'><h1>"
        f"{escape(story.title)}</h1><div class='question'><div class='postcell'><div class='s-prose' "
        f"itemprop='text'>{_body(story, heading='h3')}</div></div></div></div><div id='sidebar'>"
        f"{around.newsletter}</div></div><footer id='footer'>{around.footer}</footer><div class='js-consent-banner'>"
        f"{around.cookie}</div></body></html>"
    )


def _hashed(story: Story, around: Surroundings) -> str:
    """Return a page of a single-page application, whose class names say nothing."""
    state = '<script id="__NEXT_DATA__" type="application/json">{"props":{"pageProps":{"a":1}}}</script>'
    return (
        f"{_head(story)}<body><div id='__next'><div class='css-1x'>{_nav(around)}</div><div class='css-9f'><div "
        f"class='css-7q'><h1 class='css-aa'>{escape(story.title)}</h1><div class='css-bb'>{_body(story)}</div></div>"
        f"<aside class='css-cc'><ul>{_teasers(around)}</ul><p>{around.newsletter}</p></aside></div><footer "
        f"class='css-dd'><p>{around.footer}</p></footer></div><div class='css-ee' role='dialog'>{around.cookie}</div>"
        f"{state}</body></html>"
    )


def _bare(story: Story, around: Surroundings) -> str:
    """Return a page with hardly any markup."""
    links = " ".join(
        f'<a href="{link}">{word}</a>' for word, link in zip(around.nav, around.links, strict=True)
    )
    more = "".join(
        f'<li><a href="{link}">{escape(t)}</a>' for t, link in zip(around.teasers, around.links, strict=False)
    )
    return (
        f"<title>{escape(story.title)}</title><p>{links}<h1>{escape(story.title)}</h1>{_body(story)}<hr><div "
        f"class=related><ul>{more}</ul></div><div class=footer><small>{around.footer} {around.newsletter} "
        f"{around.cookie}</small></div>"
    )


def _anonymous(story: Story, around: Surroundings) -> str:
    """Return a page whose elements all are `div`, and whose class names say nothing."""
    links = "".join(
        f'<a class="a1" href="{link}">{word}</a>' for word, link in zip(around.nav, around.links, strict=True)
    )
    more = "".join(
        f'<div class="q1"><a href="{link}">{escape(t)}</a></div>'
        for t, link in zip(around.teasers, around.links, strict=False)
    )
    return (
        f"{_head(story)}<body><div class='r1'><div class='n1'>{links}</div><div class='m1'><div class='t1'><h1>"
        f"{escape(story.title)}</h1></div><div class='b1'>{_body(story)}</div></div><div class='o1'>{more}</div><div "
        f"class='f1'><div>{around.newsletter}</div><div>{around.cookie}</div><div>{around.footer}</div></div></div>"
        "</body></html>"
    )


def _government(story: Story, around: Surroundings) -> str:
    return (
        f"{_head(story)}<body class='govuk-template'><a class='skip-link' href='#content'>Skip to main content</a>"
        f"<div id='global-cookie-message' role='region'>{around.cookie}</div><header role='banner'>{_nav(around)}"
        f"</header><div id='content' role='main'><h1>{escape(story.title)}</h1><div class='govspeak'>{_body(story)}"
        f"</div></div><nav class='related-navigation'><ul>{_teasers(around)}</ul></nav><div class='subscribe-bar'>"
        f"{around.newsletter}</div><footer role='contentinfo'>{around.footer}</footer></body></html>"
    )


def _product(story: Story, around: Surroundings) -> str:
    return (
        f"{_head(story)}<body><div class='promo-banner'>{around.newsletter}</div>{_nav(around)}<ol "
        f"class='breadcrumb'><li>Shop</li></ol><div class='product-page'><h1>{escape(story.title)}</h1><div "
        f"class='product-description'>{_body(story, heading='h3')}</div></div><div class='recommended-products'><ul>"
        f"{_teasers(around)}</ul></div><div class='cookie-consent'>{around.cookie}</div><div id='footer'>"
        f"{around.footer}</div></body></html>"
    )


def _sections(story: Story, around: Surroundings) -> str:
    """Return a page with the text in separate sections of a `main` element."""
    parts = [f"<section><p>{escape(text)}</p></section>" for text in story.intro]
    for name, blocks in story.sections:
        body = "".join(_block(block) for block in blocks)
        parts.append(f"<section><h2>{escape(name)}</h2><div class='row'>{body}</div></section>")
    return (
        f"{_head(story)}<body>{_nav(around)}<main id='main'><h1>{escape(story.title)}</h1>{''.join(parts)}</main>"
        f"<section class='related'><ul>{_teasers(around)}</ul></section><section class='newsletter'>"
        f"{around.newsletter}</section><footer>{around.footer}</footer><div id='onetrust-consent-sdk'>"
        f"{around.cookie}</div></body></html>"
    )


STYLES: dict[str, Callable[[Story, Surroundings], str]] = {
    "semantic": _semantic,
    "divs": _divs,
    "tables": _tables,
    "blog": _blog,
    "documentation": _documentation,
    "wiki": _wiki,
    "news": _news,
    "question": _question,
    "hashed": _hashed,
    "bare": _bare,
    "anonymous": _anonymous,
    "government": _government,
    "product": _product,
    "sections": _sections,
    "chinese": _news,
}
"""The styles of pages by name."""
