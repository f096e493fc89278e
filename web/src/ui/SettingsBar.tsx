import { Languages, Monitor, Moon, ShieldCheck, Sun } from "lucide-react";
import { useState } from "react";
import { LANGUAGES, useWords, type Language } from "../text/index.ts";
import { AllowedCallsDialog } from "./AllowedCallsDialog.tsx";
import { IconButton } from "./IconButton.tsx";
import type { Choose, Preferences, Theme } from "./preferences.ts";

const THEMES: readonly Theme[] = ["system", "light", "dark"];
const SIGNS = { system: Monitor, light: Sun, dark: Moon };

/** Theme, language, and what runs without asking. */
export function SettingsBar({ preferences, onChoose }: { readonly preferences: Preferences; readonly onChoose: Choose }) {
  const words = useWords();
  const [showsAllowed, setShowsAllowed] = useState(false);
  const Sign = SIGNS[preferences.theme];
  const nextTheme = THEMES[(THEMES.indexOf(preferences.theme) + 1) % THEMES.length] ?? "system";
  return (
    <div role="group" aria-label={words.settings} className="flex items-center gap-1 border-t border-line px-3 py-2">
      <IconButton label={`${words.theme}: ${words.themes[preferences.theme]}`} onClick={() => onChoose({ theme: nextTheme })}>
        <Sign aria-hidden size={17} />
      </IconButton>
      <label className="flex items-center gap-1.5 rounded-lg px-2 py-1 text-muted hover:text-ink">
        <Languages aria-hidden size={17} />
        <select
          aria-label={words.language}
          value={preferences.language}
          className="bg-sunken text-sm"
          onChange={(event) => onChoose({ language: event.target.value as Language })}
        >
          {Object.entries(LANGUAGES).map(([code, name]) => (
            <option key={code} value={code}>
              {name}
            </option>
          ))}
        </select>
      </label>
      <IconButton label={words.allowedCalls} className="ml-auto" onClick={() => setShowsAllowed(true)}>
        <ShieldCheck aria-hidden size={17} />
      </IconButton>
      {showsAllowed && <AllowedCallsDialog onClose={() => setShowsAllowed(false)} />}
    </div>
  );
}
