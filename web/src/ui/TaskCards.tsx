import { memo } from "react";
import type { Task } from "../run/view.ts";
import { useWords } from "../text/index.ts";
import { TaskCard } from "./TaskCard.tsx";

/** Sub-agents that were sent off together. */
export const TaskCards = memo(function TaskCards({ tasks }: { readonly tasks: readonly Task[] }) {
  const words = useWords();
  const running = tasks.filter((task) => task.status === "running" || task.status === "waiting").length;
  return (
    <section aria-label={words.subagents} className="@container space-y-2">
      {tasks.length > 1 && <h2 className="text-xs text-muted">{words.tasksRunning(running, tasks.length)}</h2>}
      <ul className="grid items-start gap-2 @lg:grid-cols-2">
        {tasks.map((task, index) => (
          <li key={task.id || index} className={tasks.length === 1 ? "@lg:col-span-2" : "min-w-0"}>
            <TaskCard task={task} />
          </li>
        ))}
      </ul>
    </section>
  );
});
