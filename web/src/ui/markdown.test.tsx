import { renderToStaticMarkup } from "react-dom/server";
import { describe, expect, test } from "vitest";
import { guarded } from "./HtmlPreview.tsx";
import { linkTarget } from "./links.ts";
import { Markdown } from "./Markdown.tsx";
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
    expect(html).toContain('<div class="table-scroll"><table>');
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
