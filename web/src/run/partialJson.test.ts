import { describe, expect, test } from "vitest";
import { readPartial } from "./partialJson.ts";

const WHOLE = { description: 'Say "hi"\n', path: "/mnt/a.md", list: [1, { deep: "ü" }], flag: true };

describe("arguments still being written", () => {
  test("are readable at every length, and whole at the end", () => {
    const text = JSON.stringify(WHOLE);
    for (let end = 0; end < text.length; end += 1) {
      const read = readPartial(text.slice(0, end));

      for (const key of Object.keys(read)) expect(Object.keys(WHOLE)).toContain(key);
    }
    expect(readPartial(text)).toEqual(WHOLE);
  });

  test("show the part of a string that has arrived", () => {
    expect(readPartial('{"description": "List the up')).toEqual({ description: "List the up" });
    expect(readPartial('{"description": "List", "path": "/mnt/us')).toEqual({ description: "List", path: "/mnt/us" });
    expect(readPartial('{"a": "x\\')).toEqual({ a: "x" });
    expect(readPartial('{"a": "x\\u00')).toEqual({ a: "x" });
  });

  test("that are no object are nothing", () => {
    expect([readPartial(""), readPartial("[1"), readPartial("nonsense"), readPartial('"text"')]).toEqual([{}, {}, {}, {}]);
  });

  test("of great length are read once they are complete", () => {
    const text = JSON.stringify({ path: "/a", content: "x".repeat(50_000) });

    expect(readPartial(text.slice(0, 40_000)).path).toBe("/a");
    expect(readPartial(text).content).toHaveLength(50_000);
  });
});
