import type { Model } from "../api/types.ts";
import { useWords } from "../text/index.ts";

interface Props {
  readonly models: readonly Model[];
  readonly chosen: string | null;
  readonly onChoose: (name: string) => void;
}

/** Which model the next run uses. */
export function ModelPicker({ models, chosen, onChoose }: Props) {
  const words = useWords();
  if (models.length === 0) return null;
  return (
    <select
      aria-label={words.model}
      title={words.model}
      value={chosen ?? models[0]?.name}
      className="max-w-36 min-w-0 truncate rounded-full border border-line bg-panel px-2.5 py-1 text-xs text-muted hover:text-ink @lg:max-w-56"
      onChange={(event) => onChoose(event.target.value)}
    >
      {models.map((model) => (
        <option key={model.name} value={model.name}>
          {model.display_name || model.name}
        </option>
      ))}
    </select>
  );
}
