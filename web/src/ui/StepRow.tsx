import { ChevronRight, FileSearch, FileText, FolderOpen, Globe, ListTodo, Pencil, Terminal, Wrench, type LucideIcon } from "lucide-react";
import { memo, useState } from "react";
import { fileName } from "../api/artifacts.ts";
import type { Step } from "../run/items.ts";
import { textOf } from "../run/messages.ts";
import { useWords, type Words } from "../text/index.ts";
import { classes } from "./format.ts";
import { StatusMark } from "./StatusMark.tsx";
import { StepDetail } from "./StepDetail.tsx";

const ICONS: Readonly<Record<string, LucideIcon>> = {
  bash: Terminal, ls: FolderOpen, glob: FolderOpen, grep: FileSearch, read_file: FileText,
  write_file: Pencil, str_replace: Pencil, web_search: Globe, image_search: Globe, web_fetch: Globe, write_todos: ListTodo,
};

const LIVE_CHARS = 1500;

/** One tool call on one line; a click shows what went in and what came out. */
export const StepRow = memo(
  function StepRow({ step }: { readonly step: Step }) {
    const words = useWords();
    const [isOpen, setIsOpen] = useState(false);
    const Icon = ICONS[step.call.name] ?? Wrench;
    const note = noteOn(step, words);
    const isLive = step.status === "running" && step.output !== "";
    return (
      <div>
        <button
          type="button"
          aria-expanded={isOpen}
          className="flex w-full items-center gap-2 px-3 py-1.5 text-left hover:bg-sunken"
          onClick={() => setIsOpen(!isOpen)}
        >
          <ChevronRight aria-hidden size={14} className={classes("shrink-0 text-muted transition-transform", isOpen && "rotate-90")} />
          <Icon aria-hidden size={15} className="shrink-0 text-muted" />
          <span className="shrink-0">{words.tools[step.call.name] ?? step.call.name}</span>
          <span className="min-w-0 flex-1 truncate text-muted">{aboutStep(step)}</span>
          {note && <span className="shrink-0 text-xs text-bad">{note}</span>}
          <StatusMark status={step.status} label={words.stepStatus[step.status]} />
        </button>
        {isLive && !isOpen && (
          <pre className="max-h-32 overflow-hidden border-t border-line bg-sunken px-3 py-2 font-mono text-xs whitespace-pre-wrap">
            {step.output.slice(-LIVE_CHARS)}
          </pre>
        )}
        {isOpen && <StepDetail call={step.call} output={step.output} result={step.result ? textOf(step.result) : ""} />}
      </div>
    );
  },
  (before, after) => isSameStep(before.step, after.step),
);

function isSameStep(a: Step, b: Step): boolean {
  return a.call === b.call && a.result === b.result && a.output === b.output && a.status === b.status;
}

/** Return why a step failed, where that can be said in two words. */
function noteOn(step: Step, words: Words): string {
  const { exit_code: code, approval } = step.result?.additional_kwargs ?? {};
  if (approval?.decision === "reject" || approval?.decision === "deny") return words.refused;
  return code === undefined ? "" : words.exitCode(code);
}

/** Return what the step is about: the model's own words for it, else its main argument. */
function aboutStep(step: Step): string {
  const { args } = step.call;
  const said = args.description ?? args.query ?? args.pattern ?? args.command ?? args.url;
  const path = typeof args.path === "string" ? fileName(args.path) : "";
  if (typeof said === "string" && said) return path && !said.includes(path) ? `${said} · ${path}` : said;
  return path;
}
