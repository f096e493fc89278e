import { useWords } from "../text/index.ts";
import { DeerMark } from "./DeerMark.tsx";

interface Props {
  readonly isOffline: boolean;
  readonly onExample: (task: string) => void;
}

/** The first thing a newcomer sees: what this is and what to try. */
export function EmptyState({ isOffline, onExample }: Props) {
  const words = useWords();
  return (
    <section className="m-auto flex w-full max-w-2xl flex-col items-center gap-5 py-8 text-center">
      <DeerMark size={52} />
      <h1 className="text-2xl font-semibold tracking-tight">{words.tagline}</h1>
      <p className="max-w-xl text-muted">{words.about}</p>
      {isOffline && <p role="note" className="max-w-xl rounded-xl bg-warn-soft px-4 py-2.5 text-left text-sm text-warn">{words.offline}</p>}
      <div className="w-full space-y-2">
        <p className="text-sm text-muted">{words.examplesHint}</p>
        <ul className="grid gap-2 text-left sm:grid-cols-3">
          {words.examples.map((example) => (
            <li key={example.title}>
              <button
                type="button"
                className="flex h-full w-full flex-col rounded-xl border border-line bg-panel p-3 text-left text-sm hover:border-accent"
                onClick={() => onExample(example.task)}
              >
                <span className="font-medium">{example.title}</span>
                <span className="mt-1 text-muted">{example.task}</span>
              </button>
            </li>
          ))}
        </ul>
      </div>
    </section>
  );
}
