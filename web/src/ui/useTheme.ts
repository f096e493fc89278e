/** Light or dark, as chosen or as the system says. */

import { useLayoutEffect } from "react";
import type { Theme } from "./preferences.ts";

export function useTheme(theme: Theme): void {
  useLayoutEffect(() => {
    const system = matchMedia("(prefers-color-scheme: dark)");
    const apply = () => {
      document.documentElement.dataset.theme = theme === "system" ? (system.matches ? "dark" : "light") : theme;
    };
    apply();
    system.addEventListener("change", apply);
    return () => system.removeEventListener("change", apply);
  }, [theme]);
}
