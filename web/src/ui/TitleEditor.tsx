import { useState } from "react";
import { useWords } from "../text/index.ts";

const MOST_CHARS = 200;

interface Props {
  readonly title: string;
  readonly onSave: (title: string) => void;
  readonly onCancel: () => void;
  /** It is left with a key, so that the focus is nowhere else yet. */
  readonly onKeyLeave: () => void;
}

/** A thread's title while it is being changed: Enter keeps it, Escape leaves it. */
export function TitleEditor({ title, onSave, onCancel, onKeyLeave }: Props) {
  const words = useWords();
  const [text, setText] = useState(title);

  function finish(): void {
    const next = text.trim();
    if (next === "" || next === title) onCancel();
    else onSave(next);
  }

  return (
    <input
      autoFocus
      value={text}
      maxLength={MOST_CHARS}
      aria-label={words.threadTitle}
      className="w-full rounded-lg border border-accent bg-panel px-2 py-1.5 text-sm"
      onFocus={(event) => event.target.select()}
      onChange={(event) => setText(event.target.value)}
      onBlur={finish}
      onKeyDown={(event) => {
        if (event.key === "Enter" && !event.nativeEvent.isComposing) {
          event.preventDefault(); // else the row that gets the focus would be opened
          onKeyLeave();
          finish();
        } else if (event.key === "Escape") {
          event.preventDefault(); // what stands around the title stays open
          onKeyLeave();
          onCancel();
        }
      }}
    />
  );
}
