/** The page's words in the reader's language. */

import { createContext, useContext } from "react";
import { en, type Words } from "./en.ts";
import { zh } from "./zh.ts";

export type Language = "en" | "zh";
export type { Words };

export const LANGUAGES: Readonly<Record<Language, string>> = { en: "English", zh: "中文" };

export const WordsContext = createContext<Words>(en);

export function useWords(): Words {
  return useContext(WordsContext);
}

export function wordsIn(language: Language): Words {
  return language === "zh" ? zh : en;
}

/** Return the first of the browser's languages that we speak. */
export function preferredLanguage(languages: readonly string[]): Language {
  const found = languages.map((tag) => tag.toLowerCase().split("-")[0]).find((tag) => tag === "en" || tag === "zh");
  return found === "zh" ? "zh" : "en";
}
