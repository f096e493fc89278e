import { Square, SquareCheck } from "lucide-react";
import { useWords } from "../text/index.ts";

/** The box of a task in a list of an answer: a sign with a name, since nobody can tick it here. */
export function TaskMark({ isDone }: { readonly isDone: boolean }) {
  const words = useWords();
  const Sign = isDone ? SquareCheck : Square;
  return <Sign role="img" aria-label={isDone ? words.taskDone : words.taskOpen} size={15} className="mr-1.5 inline-block align-[-0.15em] text-muted" />;
}
