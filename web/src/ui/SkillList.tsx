import { useWords } from "../text/index.ts";
import type { SkillChoices } from "./useSkillChoices.ts";

interface Props {
  readonly id: string;
  readonly choices: SkillChoices;
}

/** The skills that the message may begin with, above the place where it is written. */
export function SkillList({ id, choices }: Props) {
  const words = useWords();
  if (choices.list.length === 0) return null;
  return (
    <ul id={id} role="listbox" aria-label={words.skills} className="mb-1 max-h-64 overflow-y-auto border-b border-line pb-1">
      {choices.list.map((skill, index) => (
        <li
          key={skill.name}
          id={`${id}-${index}`}
          role="option"
          aria-selected={index === choices.marked}
          className={`cursor-pointer truncate rounded-lg px-2 py-1 text-sm ${index === choices.marked ? "bg-accent-soft" : "hover:bg-sunken"}`}
          // Before the text loses its focus.
          onMouseDown={(event) => {
            event.preventDefault();
            choices.choose(skill);
          }}
        >
          <span className="font-medium">/{skill.name}</span> <span className="text-muted">{skill.description}</span>
        </li>
      ))}
    </ul>
  );
}
