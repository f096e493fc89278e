import { renderToStaticMarkup } from "react-dom/server";
import { describe, expect, test } from "vitest";
import { guarded } from "./HtmlPreview.tsx";
import { linkTarget } from "./links.ts";
import { Markdown } from "./Markdown.tsx";
import { prepareMarkdown } from "./prepareMarkdown.ts";
import { splitBlocks } from "./splitBlocks.ts";

const draw = (text: string): string => renderToStaticMarkup(<Markdown text={text} />);

describe("an answer's Markdown", () => {
  test("has no raw HTML", () => {
    const html = draw('<script>alert(1)</script>\n\n<img src=x onerror=alert(1)>\n\n<iframe src="https://evil.example"></iframe> a <b onclick=x>b</b>');

    expect(html).not.toMatch(/<(script|img|iframe|b)[\s>]/);
  });

  test.each([
    "javascript:alert(1)", "JaVaScRiPt:alert(1)", "java\tscript:alert(1)", " javascript:alert(1)", "&#106;avascript:alert(1)",
    "vbscript:x", "data:text/html,<script>alert(1)</script>", "file:///etc/passwd", "blob:x", "//evil.example", "/api/threads", "\u0001javascript:alert(1)",
  ])("refuses to link to %j", (href) => {
    expect(linkTarget(href).kind).toBe("refused");
    expect(draw(`[text](<${href.replace(/[<>]/g, "")}>)`)).not.toContain("href");
  });

  test("opens web links apart, without telling where from", () => {
    expect(draw("[text](https://example.com)")).toContain('rel="noopener noreferrer nofollow"');
  });

  test("loads no image from elsewhere by itself", () => {
    const html = draw("![a pixel](https://evil.example/p.png) ![d](data:image/svg+xml,x)");

    expect(html).not.toContain("<img");
    expect(html).toContain("evil.example");
  });

  test("shows the thread's own images", () => {
    expect(draw("![plot](/mnt/user-data/outputs/plot.png)")).toContain('src="/api/threads//artifacts/mnt/user-data/outputs/plot.png"');
  });

  test("opens files that are only named, wherever the name ends", () => {
    const html = draw("It is at /mnt/user-data/outputs/my-report.md. (See /mnt/user-data/uploads/笔记.md)。");

    expect(html.match(/<a /g)).toHaveLength(2);
    expect(html).toContain(">/mnt/user-data/outputs/my-report.md</a>. (See ");
    expect(html).toContain(">/mnt/user-data/uploads/笔记.md</a>)。");
  });

  test("draws citations as chips and tables that can scroll", () => {
    const html = draw("Yes [citation:The Paper](https://example.com/p).\n\n| a | b |\n|---|---|\n| 1 | 2 |");

    expect(html).toContain("The Paper");
    expect(html).not.toContain("citation:");
    expect(html).toContain('<div role="group" aria-label="Table" tabindex="0" class="table-scroll"><table>');
  });
});

describe("headings of an answer", () => {
  const levels = (text: string) => draw(text).match(/<h\d class="heading-\d"/g)?.map((tag) => [Number(tag[2]), Number(tag.at(-2))]);

  test("begin below the page's own and go down one at a time", () => {
    expect(levels("#### a\n\n# b\n\ntext\n\n### c\n\n##### d\n\n## e")).toEqual([[2, 4], [2, 1], [3, 3], [4, 5], [3, 2]]);
    expect(levels("> # in a quote\n\n- ### in a list")).toEqual([[2, 1], [3, 3]]);
  });

  test("are left out where they are empty", () => {
    expect(draw("#\n\ntext\n\n## ")).not.toMatch(/<h\d/);
  });
});

test("boxes of task lists have names, and header cells that are empty are none", () => {
  const html = draw("- [x] one\n- [ ] two\n\n|  | b |\n|---|---|\n| 1 | 2 |");

  expect(html).not.toContain("<input");
  expect(html.match(/role="img" aria-label="(done|to do)"/g)).toHaveLength(2);
  expect(html.match(/<th/g)).toHaveLength(2); // the other one is <thead>
});

describe("Markdown as models write it", () => {
  test.each([
    ["1. x\n  - y\n  - z\n2. w", 2],
    ["1. x\n   - y\n2. w", 2],
    ["10. x\n  - y\n    - z\n11. w", 3],
    ["- x\n  1. y\n    - z", 3],
  ])("nests the lists of %j", (text, depth) => {
    const html = draw(text);

    expect(html.match(/<[ou]l/g)).toHaveLength(depth);
    expect(html).toMatch(new RegExp(`(<[ou]l.*){${depth}}(</[ou]l>.*){${depth}}`, "s"));
    expect(html.indexOf("</ol>") > html.indexOf("y")).toBe(true);
  });

  test("leaves code and paragraphs where they are", () => {
    const html = draw("1. x\n  ```\n    1. code\n      - more\n  ```\n\npara\n\n    1. indented code");

    expect(html).toContain("  1. code\n    - more");
    expect(html).toContain("<p>para</p>");
    expect(html).toContain("<code>1. indented code");
  });

  test.each([
    ["It is \\(a_1 * b_2 \\\\ \\{x\\}\\) here.", "It is \\(a_1 * b_2 \\\\ \\{x\\}\\) here."],
    ["\\[\n- x = <b>\n\\]", "\\[\n- x = &lt;b&gt;\n\\]"],
    ["$$a_1 *b* c_2$$", "$$a_1 *b* c_2$$"],
  ])("keeps the formula %j", (text, shown) => {
    expect(draw(text)).toContain(`<p>${shown}</p>`);
  });

  test("takes nothing for a formula that is code, not closed or escaped", () => {
    expect(draw("`\\(a_1\\)` and ```\\(x\\)```")).toContain("<code>\\(a_1\\)</code> and <code>\\(x\\)</code>");
    expect(draw("open \\(a *b*")).toContain("open (a <em>b</em>");
    expect(draw("a \\\\(b *c*\\)")).toContain("a \\(b <em>c</em>)");
    expect(draw("```\n\\(a\\)")).toContain("\\(a\\)");
  });

  test.each(["\\(", "\\[ \\) ", "$$ \n\n", "`", "`` ` ``` ", "1. a\n  - b\n", "  ".repeat(50) + "- a\n"])("takes linear time for %j", (unit) => {
    const started = performance.now();

    prepareMarkdown(unit.repeat(200_000 / unit.length));

    expect(performance.now() - started).toBeLessThan(2000);
  });
});

describe("cutting Markdown into blocks", () => {
  test("cuts between paragraphs and headings, not inside code or lists", () => {
    const text = "# A\n\npara\n\n```py\nx\n\ny\n```\n\n- one\n\n- two\n\n  more\n\nend";

    expect(splitBlocks(text)).toEqual(["# A\n", "para\n", "```py\nx\n\ny\n```\n\n- one\n\n- two\n\n  more\n", "end"]);
  });

  test("leaves texts whole that define links", () => {
    expect(splitBlocks("[a][1]\n\nb\n\n[1]: https://example.com")).toHaveLength(1);
  });

  test("loses nothing", () => {
    const text = "a\n\n\nb\n\n~~~\n```\n\n~~~\n\nc\n\n1. x\n\n   y\n\n2) z";

    expect(splitBlocks(text).join("\n")).toBe(text);
  });

  test("keeps the beginning as it was while the end grows", () => {
    const text = "# Title\n\nFirst paragraph.\n\nSecond one, growing";
    const before = splitBlocks(text);

    const after = splitBlocks(`${text} and growing`);

    expect(after.slice(0, -1)).toEqual(before.slice(0, -1));
  });
});

test("an HTML preview is guarded before anything in it can load", () => {
  expect(guarded("<!DOCTYPE html><html><img src=https://evil.example>")).toMatch(/^<!DOCTYPE html><meta http-equiv="Content-Security-Policy"/);
  expect(guarded("<img src=x>")).toMatch(/^<meta http-equiv="Content-Security-Policy" content="default-src 'none'/);
});
