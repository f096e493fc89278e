import { LoaderCircle } from "lucide-react";
import type { View } from "../run/view.ts";
import { useWords } from "../text/index.ts";

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
  if (view.status === "stopped") return <p className="text-sm text-muted">{words.stopped}</p>;
  if (!text) return null;
  return (
    <p data-status={view.status} className="flex items-center gap-2 text-sm text-muted">
      <LoaderCircle aria-hidden size={15} className="animate-spin text-accent" />
      {view.notice ?? text}
    </p>
  );
}
