import { useWords } from "../text/index.ts";
import { useDropZone } from "./useDropZone.ts";

/** Takes files that are dropped anywhere on the page, and says so while they are dragged. */
export function DropHint({ onFiles }: { readonly onFiles: (files: File[]) => void }) {
  const words = useWords();
  const isDropping = useDropZone(onFiles);
  if (!isDropping) return null;
  return (
    <div className="pointer-events-none absolute inset-3 z-30 grid place-items-center rounded-2xl border-2 border-dashed border-accent bg-paper/85 text-accent">
      {words.dropHere}
    </div>
  );
}
