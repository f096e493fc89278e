import { useEffect, useRef, useState } from "react";
import { listAllowedCalls, revokeAllowedCall } from "../api/allowedCalls.ts";
import type { AllowedCall } from "../api/types.ts";
import { argumentsIn } from "../run/approvals.ts";
import { visible } from "../run/visibleText.ts";
import { useWords } from "../text/index.ts";
import { reasonOf } from "./format.ts";

/** The calls that run without asking, each with a button that takes it back. */
export function AllowedCallsDialog({ onClose }: { readonly onClose: () => void }) {
  const words = useWords();
  const dialog = useRef<HTMLDialogElement>(null);
  const [calls, setCalls] = useState<readonly AllowedCall[] | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const fail = (error: unknown) => setProblem(reasonOf(error, words));

  useEffect(() => {
    dialog.current?.showModal();
    listAllowedCalls().then(setCalls, fail);
  }, []);

  const takeBack = (id: string) => revokeAllowedCall(id).then(listAllowedCalls).then(setCalls, fail);

  return (
    <dialog
      ref={dialog}
      aria-labelledby="allowed-title"
      className="m-auto w-[min(40rem,calc(100vw-2rem))] rounded-2xl border border-line bg-panel p-5 text-ink shadow-xl"
      onClose={onClose}
    >
      <h2 id="allowed-title" className="font-semibold">{words.allowedCalls}</h2>
      <p className="mt-2 text-sm text-muted">{calls?.length === 0 ? words.noAllowedCalls : words.allowedCallsHint}</p>
      {problem && <p role="alert" className="mt-2 text-sm text-bad">{problem}</p>}
      <ul className="mt-3 max-h-[60vh] space-y-2 overflow-y-auto">
        {calls?.map((allowed) => (
          <li key={allowed.id} className="flex items-start gap-3 rounded-lg border border-line p-2 text-sm">
            <div className="min-w-0 flex-1">
              <code>{visible(allowed.tool)}</code>{" "}
              <span className="text-muted">{allowed.scope === "always" ? words.inAllThreads : words.inOneThread(visible(allowed.thread_title || allowed.thread_id))}</span>
              <pre role="group" aria-label={words.arguments} tabIndex={0} className="mt-1 max-h-32 overflow-auto font-mono text-xs break-all whitespace-pre-wrap">{argumentsIn(allowed.args)}</pre>
            </div>
            <button type="button" className="shrink-0 rounded-lg border border-line px-3 py-1 hover:bg-sunken" onClick={() => void takeBack(allowed.id)}>
              {words.takeBack}
            </button>
          </li>
        ))}
      </ul>
      <div className="mt-4 flex justify-end">
        <button type="button" autoFocus className="rounded-lg border border-line px-3 py-1.5 text-sm hover:bg-sunken" onClick={onClose}>
          {words.close}
        </button>
      </div>
    </dialog>
  );
}
