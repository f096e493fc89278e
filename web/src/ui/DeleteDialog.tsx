import { useEffect, useRef } from "react";
import type { Thread } from "../api/types.ts";
import { useWords } from "../text/index.ts";

interface Props {
  readonly thread: Thread;
  readonly onConfirm: () => void;
  readonly onCancel: () => void;
}

/** Asks before a thread is deleted, since that cannot be undone. */
export function DeleteDialog({ thread, onConfirm, onCancel }: Props) {
  const words = useWords();
  const dialog = useRef<HTMLDialogElement>(null);

  useEffect(() => {
    dialog.current?.showModal();
  }, []);

  return (
    <dialog
      ref={dialog}
      aria-labelledby="delete-title"
      className="m-auto w-[min(26rem,calc(100vw-2rem))] rounded-2xl border border-line bg-panel p-5 text-ink shadow-xl"
      onClose={onCancel}
    >
      <h2 id="delete-title" className="font-semibold">{words.deleteThread}</h2>
      <p className="mt-2 text-sm text-muted">{words.deleteWarning(thread.values?.title || words.untitled)}</p>
      <div className="mt-5 flex justify-end gap-2 text-sm">
        <button type="button" autoFocus className="rounded-lg border border-line px-3 py-1.5 hover:bg-sunken" onClick={onCancel}>
          {words.cancel}
        </button>
        <button type="button" className="rounded-lg bg-bad px-3 py-1.5 text-paper hover:opacity-90" onClick={onConfirm}>
          {words.delete}
        </button>
      </div>
    </dialog>
  );
}
