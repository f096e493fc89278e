import { memo, useCallback, useEffect, useLayoutEffect, useRef, useState, type RefObject } from "react";
import type { HumanInputRequest } from "../api/types.ts";
import type { Item } from "../run/items.ts";
import { useWords } from "../text/index.ts";
import { Answer } from "./Answer.tsx";
import { FileList } from "./FileList.tsx";
import { QuestionCard, type Reply } from "./QuestionCard.tsx";
import { SaidMessage } from "./SaidMessage.tsx";
import { StepList } from "./StepList.tsx";
import { SummaryMark } from "./SummaryMark.tsx";
import { TaskCards } from "./TaskCards.tsx";

/** A long thread opens with its latest items; earlier ones come when asked for. */
const PAGE = 80;

interface Props {
  readonly items: readonly Item[];
  /** The server has more that came before. */
  readonly hasEarlier: boolean;
  readonly onEarlier: () => void;
  /** The element that scrolls. */
  readonly box: RefObject<HTMLElement | null>;
  readonly onReply: (request: HumanInputRequest, reply: Reply) => void;
  /** Has an answer given once more; null while one is being given. */
  readonly onRegenerate: ((messageId: string) => void) | null;
}

/** Everything that happened in a thread, in order. */
export const ItemList = memo(function ItemList({ items, hasEarlier, onEarlier, box, onReply, onRegenerate }: Props) {
  const words = useWords();
  const [first, setFirst] = useState<number | null>(null);
  if (first === null && items.length > 0) setFirst(Math.max(0, items.length - PAGE));
  const hidden = Math.min(first ?? 0, items.length);
  const keep = useKeptPlace(box, items[hidden]?.key);
  const more = useCallback(() => {
    keep();
    if (hidden > 0) setFirst(Math.max(0, hidden - PAGE));
    else onEarlier();
  }, [hidden, keep, onEarlier]);
  const button = useOnSight(more, box);
  return (
    <>
      {(hidden > 0 || hasEarlier) && (
        <button ref={button} type="button" className="mx-auto rounded-full border border-line px-3 py-1 text-sm text-muted hover:text-ink" onClick={more}>
          {words.earlierItems}
        </button>
      )}
      {items.slice(hidden).map((item, at) => (
        <div key={item.key} className="item">
          {drawn(item, onReply, hidden + at === items.length - 1 ? onRegenerate : null)}
        </div>
      ))}
    </>
  );
});

/** Return what is called before something is put above the first item, so that the rest stays where it is in sight. */
function useKeptPlace(box: RefObject<HTMLElement | null>, firstKey: string | undefined): () => void {
  const before = useRef<{ readonly item: Element; readonly top: number; readonly key: string | undefined } | null>(null);
  useLayoutEffect(() => {
    if (!before.current || !box.current || before.current.key === firstKey) return;
    const { item, top } = before.current;
    before.current = null;
    if (item.isConnected) box.current.scrollTop += item.getBoundingClientRect().top - top;
  });
  return useCallback(() => {
    const item = box.current?.querySelector(".item");
    before.current = item ? { item, top: item.getBoundingClientRect().top, key: firstKey } : null;
  }, [box, firstKey]);
}

/** Return a ref for an element that does `act` whenever it is scrolled into sight. */
function useOnSight(act: () => void, box: RefObject<HTMLElement | null>): RefObject<HTMLButtonElement | null> {
  const element = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    if (!element.current) return;
    const observer = new IntersectionObserver((seen) => seen.some((each) => each.isIntersecting) && act(), { root: box.current });
    observer.observe(element.current);
    return () => observer.disconnect();
  }, [act, box]);
  return element;
}

function drawn(item: Item, onReply: Props["onReply"], onRegenerate: Props["onRegenerate"]) {
  switch (item.kind) {
    case "said":
      return <SaidMessage message={item.message} />;
    case "answer":
      return <Answer message={item.message} isPartial={item.isPartial} ended={item.ended} onRegenerate={onRegenerate} />;
    case "steps":
      return <StepList steps={item.steps} />;
    case "tasks":
      return <TaskCards tasks={item.tasks} />;
    case "summary":
      return <SummaryMark text={item.text} />;
    case "files":
      return <FileList paths={item.paths} />;
    case "question":
      return <QuestionCard request={item.request} answer={item.answer} isOpen={item.isOpen} onReply={onReply} />;
  }
}
