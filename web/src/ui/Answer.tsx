import { memo } from "react";
import type { Message } from "../api/types.ts";
import type { Ended } from "../run/items.ts";
import { reasoningOf, textOf } from "../run/messages.ts";
import { useWords } from "../text/index.ts";
import { CopyButton } from "./CopyButton.tsx";
import { Markdown } from "./Markdown.tsx";
import { Reasoning } from "./Reasoning.tsx";

interface Props {
  readonly message: Message;
  readonly isPartial: boolean;
  readonly ended: Ended | null;
  /** Has this answer given once more; null where that is not on offer. */
  readonly onRegenerate: ((messageId: string) => void) | null;
}

/** What the agent said, growing while it is written. */
export const Answer = memo(function Answer({ message, isPartial, ended, onRegenerate }: Props) {
  const words = useWords();
  const text = textOf(message);
  const reasoning = reasoningOf(message);
  return (
    <article aria-label={words.assistant} aria-busy={isPartial} className="group">
      {reasoning && <Reasoning text={reasoning} isOpen={isPartial && text === ""} />}
      {text.trim() && (
        <div className={isPartial ? "writing" : undefined}>
          <Markdown text={text} />
        </div>
      )}
      {ended && (
        <p data-ended={ended} className="mt-2 text-sm text-muted">
          {ended === "stopped" ? words.answerStopped : words.answerFailed}
          {ended === "stopped" && onRegenerate && message.id && (
            <button type="button" title={words.regenerateHint} className="link ml-2" onClick={() => onRegenerate(message.id ?? "")}>
              {words.regenerate}
            </button>
          )}
        </p>
      )}
      {!isPartial && isFinal(message) && text.trim() && (
        <div className="-ml-1.5 h-7 opacity-0 transition-opacity group-hover:opacity-100 focus-within:opacity-100 [@media(hover:none)]:opacity-100">
          <CopyButton text={() => text} label={words.copyAnswer} />
        </div>
      )}
    </article>
  );
});

/** What is said on the way to a tool call needs no copying. */
function isFinal(message: Message): boolean {
  return (message.tool_calls ?? []).length === 0;
}
