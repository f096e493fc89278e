/** What the person chose on this device: theme, language, model and modes. */

import { useCallback, useState } from "react";
import type { RunContext } from "../api/types.ts";
import { preferredLanguage, type Language } from "../text/index.ts";

export type Theme = "system" | "light" | "dark";

export interface Preferences {
  readonly theme: Theme;
  readonly language: Language;
  /** Null means whichever model the server names first. */
  readonly model: string | null;
  readonly thinking: boolean;
  readonly plan: boolean;
  readonly subagents: boolean;
}

export type Choose = (choice: Partial<Preferences>) => void;

const KEY = "deerflow:preferences";
const CONCURRENT_SUBAGENTS = 3;

export function usePreferences(): readonly [Preferences, Choose] {
  const [preferences, setPreferences] = useState(readPreferences);
  const choose = useCallback<Choose>((choice) => {
    setPreferences((before) => {
      const next = { ...before, ...choice };
      try {
        localStorage.setItem(KEY, JSON.stringify(next));
      } catch {
        // Storage may be full or switched off: the choice then lasts until the page is closed.
      }
      return next;
    });
  }, []);
  return [preferences, choose];
}

/** Return what a run is told, given these preferences. */
export function runContext(preferences: Preferences, model: string | null): RunContext {
  return {
    ...(model ? { model_name: model } : {}),
    thinking_enabled: preferences.thinking,
    is_plan_mode: preferences.plan,
    subagent_enabled: preferences.subagents,
    max_concurrent_subagents: CONCURRENT_SUBAGENTS,
    locale: preferences.language,
  };
}

function readPreferences(): Preferences {
  const defaults: Preferences = {
    theme: "system",
    language: preferredLanguage(navigator.languages),
    model: null,
    thinking: true,
    plan: false,
    subagents: true,
  };
  try {
    const kept: unknown = JSON.parse(localStorage.getItem(KEY) ?? "{}");
    return typeof kept === "object" ? { ...defaults, ...kept } : defaults;
  } catch {
    return defaults;
  }
}
