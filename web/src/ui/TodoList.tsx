import { ChevronRight, Circle, CircleCheck, CircleDot } from "lucide-react";
import { memo, useState } from "react";
import type { Todo } from "../api/types.ts";
import { useWords } from "../text/index.ts";
import { classes } from "./format.ts";

const SIGNS = { pending: Circle, in_progress: CircleDot, completed: CircleCheck };

/** The agent's plan: what is done, what is next. */
export const TodoList = memo(function TodoList({ todos }: { readonly todos: readonly Todo[] }) {
  const words = useWords();
  const [isOpen, setIsOpen] = useState(false);
  const done = todos.filter((todo) => todo.status === "completed").length;
  const current = todos.find((todo) => todo.status === "in_progress");
  return (
    <section aria-label={words.todos} className="mb-2 rounded-xl border border-line bg-panel text-sm">
      <button
        type="button"
        aria-expanded={isOpen}
        className="flex w-full items-center gap-2 px-3 py-1.5 text-left"
        onClick={() => setIsOpen(!isOpen)}
      >
        <ChevronRight aria-hidden size={14} className={classes("shrink-0 text-muted transition-transform", isOpen && "rotate-90")} />
        <span>{words.todos}</span>
        <span className="text-muted">{words.todosDone(done, todos.length)}</span>
        {!isOpen && current && <span className="min-w-0 flex-1 truncate text-muted">{current.content}</span>}
      </button>
      {isOpen && (
        <ul aria-label={words.todos} tabIndex={0} className="max-h-48 space-y-1 overflow-y-auto border-t border-line px-3 py-2">
          {todos.map((todo, index) => {
            const Sign = SIGNS[todo.status] ?? Circle;
            return (
              <li key={index} className="flex items-start gap-2">
                <Sign role="img" aria-label={words.todoStatus[todo.status] ?? todo.status} size={15} className={classes("mt-1 shrink-0", todo.status === "pending" ? "text-muted" : "text-accent")} />
                <span className={todo.status === "completed" ? "text-muted line-through" : undefined}>{todo.content}</span>
              </li>
            );
          })}
        </ul>
      )}
    </section>
  );
});
