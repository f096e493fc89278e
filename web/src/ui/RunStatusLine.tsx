import { LoaderCircle } from "lucide-react";
import { isBusy, type View } from "../run/view.ts";
import { useWords } from "../text/index.ts";
import { useQuietSeconds } from "./useQuietSeconds.ts";

/** From here on a person wonders whether anything still happens. */
const LONG_SECONDS = 10;

/** What the run is doing when nothing else shows it. */
export function RunStatusLine({ view }: { readonly view: View }) {
  const words = useWords();
  const said: Partial<Record<View["status"], string>> = {
    starting: words.starting,
    running: words.working,
    reconnecting: words.reconnecting,
    stopping: words.stopping,
  };
  const text = said[view.status];
  const quiet = useQuietSeconds(view, isBusy(view));
  if (view.status === "stopped") return <p className="text-sm text-muted">{words.stopped}</p>;
  if (!text) return null;
  return (
    <p data-status={view.status} className="flex items-center gap-2 text-sm text-muted">
      <LoaderCircle aria-hidden size={15} className="animate-spin text-accent" />
      {view.notice ?? text}
      {quiet >= LONG_SECONDS && <span aria-hidden>· {words.quietFor(quiet)}</span>}
    </p>
  );
}
