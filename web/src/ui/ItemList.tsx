import { memo, useState } from "react";
import type { HumanInputRequest } from "../api/types.ts";
import type { Item } from "../run/items.ts";
import { useWords } from "../text/index.ts";
import { Answer } from "./Answer.tsx";
import { FileList } from "./FileList.tsx";
import { QuestionCard, type Reply } from "./QuestionCard.tsx";
import { SaidMessage } from "./SaidMessage.tsx";
import { StepList } from "./StepList.tsx";
import { TaskCards } from "./TaskCards.tsx";

/** A long thread opens with its latest items; earlier ones come when asked for. */
const PAGE = 80;

interface Props {
  readonly items: readonly Item[];
  readonly onReply: (request: HumanInputRequest, reply: Reply) => void;
}

/** Everything that happened in a thread, in order. */
export const ItemList = memo(function ItemList({ items, onReply }: Props) {
  const words = useWords();
  const [first, setFirst] = useState<number | null>(null);
  if (first === null && items.length > 0) setFirst(Math.max(0, items.length - PAGE));
  const hidden = Math.min(first ?? 0, items.length);
  return (
    <>
      {hidden > 0 && (
        <button type="button" className="mx-auto rounded-full border border-line px-3 py-1 text-sm text-muted hover:text-ink" onClick={() => setFirst(Math.max(0, hidden - PAGE))}>
          {words.earlierItems}
        </button>
      )}
      {items.slice(hidden).map((item) => (
        <div key={item.key} className="item">
          {drawn(item, onReply)}
        </div>
      ))}
    </>
  );
});

function drawn(item: Item, onReply: Props["onReply"]) {
  switch (item.kind) {
    case "said":
      return <SaidMessage message={item.message} />;
    case "answer":
      return <Answer message={item.message} isPartial={item.isPartial} />;
    case "steps":
      return <StepList steps={item.steps} />;
    case "tasks":
      return <TaskCards tasks={item.tasks} />;
    case "files":
      return <FileList paths={item.paths} />;
    case "question":
      return <QuestionCard request={item.request} answer={item.answer} isOpen={item.isOpen} onReply={onReply} />;
  }
}
