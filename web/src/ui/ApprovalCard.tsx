import { ShieldQuestion } from "lucide-react";
import { useState } from "react";
import type { ActionRequest, ApprovalRequest, Decision } from "../api/types.ts";
import { argumentsText, edited, onlyText } from "../run/approvals.ts";
import { visible } from "../run/visibleText.ts";
import { useWords, type Words } from "../text/index.ts";
import { CopyButton } from "./CopyButton.tsx";
import { classes } from "./format.ts";

const BUTTON = "rounded-lg border border-line px-3 py-1.5 text-sm disabled:opacity-40";
const MAIN_BUTTON = "rounded-lg bg-accent px-3 py-1.5 text-sm text-accent-ink disabled:opacity-40";
const BOX = "max-h-80 w-full overflow-auto rounded-lg bg-sunken p-2 font-mono text-xs leading-5 break-all whitespace-pre-wrap";

interface Props {
  readonly action: ActionRequest;
  readonly request: ApprovalRequest;
  readonly onDecide: (decision: Decision) => void;
}

/** A tool call that runs only if the person says so: all of it is shown, as it would run. */
export function ApprovalCard({ action, request, onDecide }: Props) {
  const words = useWords();
  const [draft, setDraft] = useState<string | null>(null);
  const [reason, setReason] = useState("");
  const changed = draft === null ? null : edited(action, draft);
  return (
    <section aria-label={words.approval} className="space-y-3 rounded-xl border border-accent/40 bg-panel p-4">
      <h2 className="flex items-center gap-2 text-sm text-accent">
        <ShieldQuestion aria-hidden size={16} />
        {words.approval} <code>{visible(action.name)}</code>
      </h2>
      <p className="text-sm whitespace-pre-wrap text-muted">{reasonFor(action, request, words)}</p>
      {draft === null ? (
        <div className="relative">
          <pre role="group" aria-label={words.arguments} tabIndex={0} className={classes(BOX, "pr-9")}>{argumentsText(action.args)}</pre>
          <div className="absolute top-1 right-1">
            <CopyButton text={() => draftOf(action)} label={words.copyNamed(words.arguments)} />
          </div>
        </div>
      ) : (
        <textarea
          autoFocus
          aria-label={words.newArguments}
          rows={Math.min(12, Math.max(3, draft.split("\n").length + 1))}
          className={BOX}
          value={draft}
          onChange={(event) => setDraft(event.target.value)}
          onKeyDown={(event) => event.key === "Escape" && setDraft(null)}
        />
      )}
      {draft !== null && visible(draft) !== draft && (
        <div role="note" className="space-y-1 text-sm text-warn">
          <p>{words.hiddenCharacters}</p>
          <pre tabIndex={0} className={BOX}>{visible(draft)}</pre>
        </div>
      )}
      {draft !== null && changed === null && <p role="alert" className="text-sm text-warn">{words.notAnObject}</p>}
      <div className="flex flex-wrap gap-2">
        {draft === null ? (
          <>
            <button type="button" className={MAIN_BUTTON} onClick={() => onDecide({ type: "approve" })}>{words.approve}</button>
            {(request.remember ?? []).map((scope) => (
              <button key={scope} type="button" title={words.rememberHint} className={BUTTON} onClick={() => onDecide({ type: "approve", remember: scope })}>
                {words.remember[scope]}
              </button>
            ))}
            <button type="button" className={BUTTON} onClick={() => setDraft(draftOf(action))}>{words.change}</button>
          </>
        ) : (
          <>
            <button type="button" disabled={changed === null} className={MAIN_BUTTON} onClick={() => changed && onDecide({ type: "edit", edited_action: changed })}>
              {words.runChanged}
            </button>
            <button type="button" className={BUTTON} onClick={() => setDraft(null)}>{words.cancel}</button>
          </>
        )}
        <form className="flex min-w-0 flex-1 basis-72 gap-2" onSubmit={(event) => { event.preventDefault(); onDecide({ type: "reject", message: reason.trim() }); }}>
          <input aria-label={words.refuseReason} placeholder={words.refuseReason} value={reason} className="min-w-0 flex-1 rounded-lg border border-line bg-paper px-3 py-1.5 text-sm" onChange={(event) => setReason(event.target.value)} />
          <button type="submit" className={BUTTON}>{words.refuse}</button>
        </form>
      </div>
    </section>
  );
}

/** Return who asks and why, in the reader's language where the page knows the reason. */
function reasonFor(action: ActionRequest, request: ApprovalRequest, words: Words): string {
  const reason = request.reason_code ? words.approvalReasons[request.reason_code]?.(request.rule ?? 0) : undefined;
  if (reason === undefined) return visible(action.description ?? "");
  const problem = request.problem ? words.answerUnused(visible(request.problem)) : null;
  const asker = request.subagent ? words.askedBy(visible(request.subagent)) : null;
  return [problem, asker, reason].filter(Boolean).join("\n");
}

function draftOf(action: ActionRequest): string {
  const key = onlyText(action);
  return key === null ? JSON.stringify(action.args, null, 2) : String(action.args[key]);
}
