import { useWords } from "../text/index.ts";

/** Where the model's view of the conversation begins: it knows what is above from a summary, which opens here. */
export function SummaryMark({ text }: { readonly text: string }) {
  const words = useWords();
  const line = (
    <span className="flex items-center gap-3 text-sm text-muted before:h-px before:flex-1 before:bg-line after:h-px after:flex-1 after:bg-line">
      {words.summedUp}
    </span>
  );
  if (!text) return <div data-mark="summary">{line}</div>;
  return (
    <details data-mark="summary">
      <summary className="cursor-pointer list-none rounded-md hover:text-ink">{line}</summary>
      <div className="mt-2 max-h-72 overflow-y-auto rounded-xl border border-line px-4 py-3 text-sm whitespace-pre-wrap text-muted">{text}</div>
    </details>
  );
}
