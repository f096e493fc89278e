import { ChevronRight } from "lucide-react";
import { useState } from "react";
import { useWords } from "../text/index.ts";
import { classes } from "./format.ts";

/** What the model thought; open while it thinks, folded afterwards, as the person likes from then on. */
export function Reasoning({ text, isOpen }: { readonly text: string; readonly isOpen: boolean }) {
  const words = useWords();
  const [chosen, setChosen] = useState<boolean | null>(null);
  const isShown = chosen ?? isOpen;
  return (
    <div className="mb-2 text-sm text-muted">
      <button
        type="button"
        aria-expanded={isShown}
        className="flex items-center gap-1 rounded-md hover:text-ink"
        onClick={() => setChosen(!isShown)}
      >
        <ChevronRight aria-hidden size={14} className={classes("transition-transform", isShown && "rotate-90")} />
        {words.thought}
      </button>
      {isShown && <div role="group" aria-label={words.thought} tabIndex={0} className="mt-1 ml-1.5 max-h-72 overflow-y-auto border-l-2 border-line pl-3 whitespace-pre-wrap">{text}</div>}
    </div>
  );
}
