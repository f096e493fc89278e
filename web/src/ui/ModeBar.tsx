import { Bot, Brain, ListTodo } from "lucide-react";
import type { Model } from "../api/types.ts";
import { useWords } from "../text/index.ts";
import { ModeToggle } from "./ModeToggle.tsx";
import type { Choose, Preferences } from "./preferences.ts";

interface Props {
  readonly model: Model | null;
  readonly preferences: Preferences;
  readonly onChoose: Choose;
}

/** How the next run works: with thinking, a plan, sub-agents. */
export function ModeBar({ model, preferences, onChoose }: Props) {
  const words = useWords();
  const canThink = model?.supports_thinking !== false;
  return (
    <>
      <ModeToggle
        icon={Brain}
        label={words.thinking}
        hint={canThink ? words.thinkingHint : words.noThinking}
        isOn={preferences.thinking && canThink}
        isDisabled={!canThink}
        onToggle={(thinking) => onChoose({ thinking })}
      />
      <ModeToggle icon={ListTodo} label={words.plan} hint={words.planHint} isOn={preferences.plan} onToggle={(plan) => onChoose({ plan })} />
      <ModeToggle
        icon={Bot}
        label={words.subagents}
        hint={words.subagentsHint}
        isOn={preferences.subagents}
        onToggle={(subagents) => onChoose({ subagents })}
      />
    </>
  );
}
