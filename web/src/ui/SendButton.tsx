import { ArrowUp, LoaderCircle, Square } from "lucide-react";
import { useWords } from "../text/index.ts";

interface Props {
  readonly isBusy: boolean;
  readonly isStopping: boolean;
  readonly isWaiting: boolean;
  readonly canSend: boolean;
  readonly onStop: () => void;
}

/** Sends the message; while a run is under way, stops it. */
export function SendButton({ isBusy, isStopping, isWaiting, canSend, onStop }: Props) {
  const words = useWords();
  if (isBusy) {
    return (
      <button
        type="button"
        aria-label={words.stop}
        title={words.stop}
        disabled={isStopping}
        className="rounded-full bg-ink p-2.5 text-paper hover:opacity-85 disabled:opacity-40"
        onClick={onStop}
      >
        <Square aria-hidden size={14} fill="currentColor" />
      </button>
    );
  }
  return (
    <button
      type="submit"
      aria-label={words.send}
      title={words.send}
      disabled={!canSend}
      className="rounded-full bg-accent p-2 text-accent-ink hover:opacity-90 disabled:opacity-30"
    >
      {isWaiting ? <LoaderCircle aria-hidden size={18} className="animate-spin" /> : <ArrowUp aria-hidden size={18} />}
    </button>
  );
}
