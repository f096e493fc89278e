import { renderToStaticMarkup } from "react-dom/server";
import { describe, expect, test } from "vitest";
import { webResults } from "../run/webResults.ts";
import { WebResults } from "./WebResults.tsx";

describe("the result of a search", () => {
  test("is a list of pages or images", () => {
    const pages = JSON.stringify([{ title: "Deer", url: "https://a.example/x", content: "About deer", source: "tavily" }]);
    const images = JSON.stringify({ query: "deer", results: [{ title: "A deer", image_url: "https://a.example/d.jpg", source_url: "https://a.example/" }] });

    expect(webResults("web_search", pages)).toEqual([{ title: "Deer", url: "https://a.example/x", content: "About deer" }]);
    expect(webResults("image_search", images)).toEqual([{ title: "A deer", url: "https://a.example/d.jpg", content: "https://a.example/" }]);
  });

  test.each(["No results.", "{}", "null", "[", '{"results": 3}'])("is shown as text when it is %j", (result) => {
    expect(webResults("web_search", result)).toBeNull();
  });

  test("is text for other tools", () => {
    expect(webResults("bash", "[]")).toBeNull();
  });

  test("links safely and loads nothing", () => {
    const bad = { title: "<img src=x>", url: "javascript:alert(1)", content: "<b>x</b>" };
    const html = renderToStaticMarkup(<WebResults label="Result" results={[bad, { title: "", url: "https://a.example/x", content: "" }]} />);

    expect(html).not.toMatch(/<(img|b)[\s>]/);
    expect(html).not.toContain('href="javascript');
    expect(html).toContain('href="https://a.example/x"');
  });
});
