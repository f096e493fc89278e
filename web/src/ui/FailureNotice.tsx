import { CircleAlert } from "lucide-react";
import { NO_THREAD, UNSENT, type Failure } from "../run/view.ts";
import { useWords, type Words } from "../text/index.ts";

interface Props {
  readonly failure: Failure;
  /** The conversation itself says why. */
  readonly isExplained: boolean;
  readonly onRetry: () => void;
}

/** What went wrong, in words, and a way on. */
export function FailureNotice({ failure, isExplained, onRetry }: Props) {
  const words = useWords();
  return (
    <div role="alert" className="flex items-start gap-3 rounded-xl bg-bad-soft px-4 py-3 text-sm text-bad">
      <CircleAlert aria-hidden size={18} className="mt-0.5 shrink-0" />
      <div className="min-w-0 flex-1">
        <p className="font-medium">{headline(failure, words)}</p>
        {failure.message && !isExplained && failure.name !== "offline" && failure.name !== NO_THREAD && <p className="whitespace-pre-wrap">{failure.message}</p>}
      </div>
      {failure.name !== NO_THREAD && (
        <button type="button" className="shrink-0 rounded-lg border border-current px-3 py-1 hover:opacity-80" onClick={onRetry}>
          {words.retry}
        </button>
      )}
    </div>
  );
}

function headline(failure: Failure, words: Words): string {
  if (failure.name === "offline") return words.offlineError;
  if (failure.name === NO_THREAD) return words.notFound;
  if (failure.name === UNSENT) return words.unsent;
  return failure.message ? words.failed : words.lastRunFailed;
}
