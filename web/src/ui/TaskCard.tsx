import { Bot, ChevronRight } from "lucide-react";
import { memo, useState } from "react";
import type { Task } from "../run/view.ts";
import { useWords } from "../text/index.ts";
import { classes, shortCount } from "./format.ts";
import { StatusMark } from "./StatusMark.tsx";
import { TaskDetail } from "./TaskDetail.tsx";

/** A sub-agent: what it does, how it stands and its latest step; a click shows the rest. */
export const TaskCard = memo(
  function TaskCard({ task }: { readonly task: Task }) {
    const words = useWords();
    const [isOpen, setIsOpen] = useState(false);
    const results = task.steps.filter((step) => step.kind === "result");
    const failed = results.filter((step) => step.isFailed).length;
    return (
      <article data-task={task.id} data-status={task.status} className="overflow-hidden rounded-xl border border-line bg-panel text-sm">
        <button
          type="button"
          aria-expanded={isOpen}
          className="flex w-full flex-col gap-1 px-3 py-2 text-left hover:bg-sunken"
          onClick={() => setIsOpen(!isOpen)}
        >
          <span className="flex w-full items-center gap-2">
            <Bot aria-hidden size={16} className="shrink-0 text-accent" />
            <span className="min-w-0 flex-1 font-medium">{task.description || words.subagent}</span>
            <StatusMark status={task.status} label={words.taskStatus[task.status]} />
            <ChevronRight aria-hidden size={14} className={classes("shrink-0 text-muted transition-transform", isOpen && "rotate-90")} />
          </span>
          {!isOpen && <span className="w-full truncate text-xs text-muted">{latest(task) || words.taskStatus[task.status]}</span>}
          {failed > 0 && (
            <span className="text-xs text-muted">
              {words.stepCount(results.length)}, <span className="text-bad">{words.failures(failed)}</span>
            </span>
          )}
        </button>
        {isOpen && <TaskDetail task={task} />}
        {isOpen && task.tokens !== null && (
          <p className="px-3 pb-2 text-xs text-muted">
            {[task.model, words.tokens(shortCount(task.tokens))].filter(Boolean).join(" · ")}
          </p>
        )}
      </article>
    );
  },
  (before, after) => isSameTask(before.task, after.task),
);

function latest(task: Task): string {
  if (task.status !== "running" && task.status !== "waiting" && task.result) return task.result.slice(0, 300).replace(/[*_`#]+/g, "");
  return (task.steps.findLast((step) => step.kind !== "result") ?? task.steps.at(-1))?.text ?? "";
}

function isSameTask(a: Task, b: Task): boolean {
  return a.status === b.status && a.steps === b.steps && a.result === b.result && a.description === b.description && a.tokens === b.tokens;
}
