import { useCallback, useState, type FocusEvent, type KeyboardEvent } from "react";

const ROW = "[data-row]";

/** What a list needs to be one stop of the Tab key. */
export interface RowKeys {
  /** The row that the Tab key reaches. */
  readonly stop: string | null;
  readonly onFocus: (event: FocusEvent) => void;
  readonly onKeyDown: (event: KeyboardEvent) => void;
}

/** Lets the arrow keys go through the rows of a list: up and down between rows, right and left within one. */
export function useRowKeys(ids: readonly string[], current: string): RowKeys {
  const [focused, setFocused] = useState<string | null>(null);
  const stop = [focused, current].find((id) => id !== null && ids.includes(id)) ?? ids[0] ?? null;

  const onFocus = useCallback((event: FocusEvent) => {
    setFocused(event.target.closest<HTMLElement>(ROW)?.dataset.row ?? null);
  }, []);

  const onKeyDown = useCallback((event: KeyboardEvent) => {
    const target = event.target as HTMLElement;
    const row = target.closest<HTMLElement>(ROW);
    if (row === null || target instanceof HTMLInputElement) return; // in a title that is being changed, keys write
    const next = nextTo(row, target, event.key);
    if (next === null) return;
    event.preventDefault();
    next.focus();
  }, []);

  return { stop, onFocus, onKeyDown };
}

function nextTo(row: HTMLElement, target: HTMLElement, key: string): HTMLElement | null {
  const rows = [...(row.closest("ul")?.querySelectorAll<HTMLElement>(ROW) ?? [])];
  const at = rows.indexOf(row);
  const buttons = [...row.querySelectorAll<HTMLElement>("button")];
  const first = (other: HTMLElement | undefined) => other?.querySelector<HTMLElement>("button") ?? null;
  switch (key) {
    case "ArrowDown":
      return first(rows[at + 1]);
    case "ArrowUp":
      return first(rows[at - 1]);
    case "Home":
      return first(rows[0]);
    case "End":
      return first(rows.at(-1));
    case "ArrowRight":
      return buttons[buttons.indexOf(target) + 1] ?? null;
    case "ArrowLeft":
      return buttons[buttons.indexOf(target) - 1] ?? null;
    default:
      return null;
  }
}
