import { X } from "lucide-react";
import type { Task } from "../run/view.ts";
import { useWords } from "../text/index.ts";
import { classes } from "./format.ts";
import { Markdown } from "./Markdown.tsx";

/** A sub-agent's steps and its result. */
export function TaskDetail({ task }: { readonly task: Task }) {
  const words = useWords();
  return (
    <div className="space-y-2 border-t border-line px-3 py-2">
      {task.steps.length > 0 && (
        <section>
          <p className="text-xs text-muted">{words.steps}</p>
          <ol aria-label={words.steps} tabIndex={0} className="mt-1 max-h-56 space-y-1 overflow-y-auto text-xs">
            {task.steps.map((step, index) => (
              <li key={index} className={classes("line-clamp-3", step.kind === "result" ? "pl-3 text-muted" : "text-ink")}>
                {step.isFailed && <X role="img" aria-label={words.stepStatus.failed} size={13} className="mr-1 inline text-bad" />}
                {step.text}
              </li>
            ))}
          </ol>
        </section>
      )}
      {task.result && (
        <section>
          <p className="text-xs text-muted">{words.result}</p>
          <div role="group" aria-label={words.result} tabIndex={0} className={classes("mt-1 max-h-80 overflow-y-auto", task.status !== "completed" && "text-bad")}>
            <Markdown text={task.result} level={3} />
          </div>
        </section>
      )}
      {task.steps.length === 0 && !task.result && <p className="text-xs text-muted">{words.taskStatus[task.status]}</p>}
    </div>
  );
}
