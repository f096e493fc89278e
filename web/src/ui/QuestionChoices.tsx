import type { HumanInputOption } from "../api/types.ts";
import { useWords } from "../text/index.ts";
import type { Reply } from "./QuestionCard.tsx";
import { QuestionText } from "./QuestionText.tsx";

interface Props {
  readonly options: readonly HumanInputOption[];
  readonly onReply: (reply: Reply) => void;
}

/** One button per option, and a line for anything else. */
export function QuestionChoices({ options, onReply }: Props) {
  const words = useWords();
  return (
    <div className="space-y-3">
      <div className="flex flex-wrap gap-2">
        {options.map((option) => (
          <button
            key={option.id}
            type="button"
            className="rounded-lg border border-line px-3 py-1.5 text-left text-sm hover:border-accent hover:bg-accent-soft"
            onClick={() => onReply({ text: option.value ?? option.label, optionId: option.id })}
          >
            {option.label}
          </button>
        ))}
      </div>
      <QuestionText label={words.otherAnswer} onReply={onReply} />
    </div>
  );
}
