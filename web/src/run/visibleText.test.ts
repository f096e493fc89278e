import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { visible } from "./visibleText.ts";

interface Rules {
  readonly texts: readonly { readonly name: string; readonly text: string; readonly shown: string }[];
  readonly coded: readonly (readonly [number, number])[];
}

const rules = JSON.parse(readFileSync(new URL("../../../tests/support/visible_text.json", import.meta.url), "utf8")) as Rules;

test.each(rules.texts)("shows $name", ({ text, shown }) => {
  expect(visible(text)).toBe(shown);
});

test("shows every character alone as the server shows it", () => {
  const coded: [number, number][] = [];
  for (let point = 0; point <= 0x10ffff; point += 1) {
    const letter = String.fromCodePoint(point);
    if (visible(letter) === letter) continue;
    const last = coded.at(-1);
    if (last && last[1] === point - 1) last[1] = point;
    else coded.push([point, point]);
  }

  expect(coded).toEqual(rules.coded);
});
