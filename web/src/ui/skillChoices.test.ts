import { expect, test } from "vitest";
import { skillChoices, slashWord } from "./skillChoices.ts";

const skill = (name: string, enabled = true) => ({ name, description: "", enabled });
const SKILLS = [skill("chart"), skill("data-analysis"), skill("deep-research"), skill("research"), skill("old", false), skill("bootstrap"), skill("报告生成")];

test("a word after a slash is being written until a space or another slash", () => {
  expect(["/", "/da", "/data-analysis", "/报告"].map(slashWord)).toEqual(["", "da", "data-analysis", "报告"]);
  expect(["", "da", " /da", "/da ta", "/etc/hosts", "/da\n"].map(slashWord)).toEqual([null, null, null, null, null, null]);
});

test("skills that begin with the word come first, and those that cannot be used are left out", () => {
  const names = (word: string) => skillChoices(word, SKILLS).map((each) => each.name);
  expect(names("re")).toEqual(["research", "deep-research"]);
  expect(names("报")).toEqual(["报告生成"]);
  expect(names("")).toEqual(["chart", "data-analysis", "deep-research", "research", "报告生成"]);
  expect([names("old"), names("boot"), names("chart")]).toEqual([[], [], []]);
});
