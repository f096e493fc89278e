import { useState } from "react";
import { useWords } from "../text/index.ts";
import type { Reply } from "./QuestionCard.tsx";

/** A line to write an answer on. */
export function QuestionText({ label, onReply }: { readonly label: string; readonly onReply: (reply: Reply) => void }) {
  const words = useWords();
  const [text, setText] = useState("");
  return (
    <form
      className="flex gap-2"
      onSubmit={(event) => {
        event.preventDefault();
        if (text.trim()) onReply({ text: text.trim() });
      }}
    >
      <input
        aria-label={label}
        placeholder={label}
        value={text}
        className="min-w-0 flex-1 rounded-lg border border-line bg-paper px-3 py-1.5 text-sm"
        onChange={(event) => setText(event.target.value)}
      />
      <button
        type="submit"
        disabled={!text.trim()}
        className="rounded-lg bg-accent px-3 py-1.5 text-sm text-accent-ink disabled:opacity-40"
      >
        {words.send}
      </button>
    </form>
  );
}
