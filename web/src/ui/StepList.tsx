import { memo, useState } from "react";
import { failuresIn, type Step } from "../run/items.ts";
import { useWords } from "../text/index.ts";
import { StepRow } from "./StepRow.tsx";

/** Beyond this many steps the earlier ones are folded away. */
const MOST_SHOWN = 5;
const LATEST_SHOWN = 3;

/** A row of tool calls that followed each other. */
export const StepList = memo(function StepList({ steps }: { readonly steps: readonly Step[] }) {
  const words = useWords();
  const [isWhole, setIsWhole] = useState(false);
  const hidden = isWhole || steps.length <= MOST_SHOWN ? 0 : steps.length - LATEST_SHOWN;
  const failed = failuresIn(steps.slice(0, hidden));
  return (
    <ol className="overflow-hidden rounded-xl border border-line bg-panel text-sm">
      {hidden > 0 && (
        <li className="border-b border-line">
          <button type="button" className="w-full px-3 py-1.5 text-left text-muted hover:text-ink" onClick={() => setIsWhole(true)}>
            {words.earlierSteps(hidden)}
            {failed > 0 && <span className="text-bad">, {words.failures(failed)}</span>}
          </button>
        </li>
      )}
      {steps.slice(hidden).map((step) => (
        <li key={step.key} className="border-line not-last:border-b">
          <StepRow step={step} />
        </li>
      ))}
    </ol>
  );
});
