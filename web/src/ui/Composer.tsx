import { useEffect, useLayoutEffect, useRef, type ClipboardEvent, type KeyboardEvent } from "react";
import type { Model } from "../api/types.ts";
import { useWords } from "../text/index.ts";
import { AttachButton } from "./AttachButton.tsx";
import { AttachmentList } from "./AttachmentList.tsx";
import { ModeBar } from "./ModeBar.tsx";
import { ModelPicker } from "./ModelPicker.tsx";
import type { Choose, Preferences } from "./preferences.ts";
import { SendButton } from "./SendButton.tsx";
import { SkillList } from "./SkillList.tsx";
import type { Sending } from "./useSending.ts";
import { useSkillChoices } from "./useSkillChoices.ts";

interface Props {
  readonly isNew: boolean;
  readonly sending: Sending;
  readonly isBusy: boolean;
  readonly isStopping: boolean;
  readonly models: readonly Model[];
  readonly model: Model | null;
  readonly preferences: Preferences;
  readonly onChoose: Choose;
  readonly onStop: () => void;
}

/** Where the person writes: text, files, model and modes. */
export function Composer({ isNew, sending, isBusy, isStopping, models, model, preferences, onChoose, onStop }: Props) {
  const words = useWords();
  const area = useRef<HTMLTextAreaElement>(null);
  const { draft, setDraft, attachments, isWaiting, send } = sending;
  const skills = useSkillChoices(draft, setDraft);
  const canSend = !isBusy && !isWaiting && (draft.trim() !== "" || attachments.list.some((entry) => !entry.error));

  useLayoutEffect(() => {
    if (!area.current) return;
    area.current.style.height = "auto";
    area.current.style.height = `${area.current.scrollHeight}px`;
  }, [draft]);

  // A new chat begins with writing; where there is no mouse, focus would raise the keyboard over the page.
  useEffect(() => {
    if (isNew && matchMedia("(hover: hover)").matches) area.current?.focus();
  }, [isNew]);

  function onKeyDown(event: KeyboardEvent): void {
    // While an input method composes (Chinese, Japanese…), Enter chooses a candidate.
    const isComposing = event.nativeEvent.isComposing || event.keyCode === 229; // Safari ends composing one event early
    if (isComposing || skills.take(event) || event.key !== "Enter" || event.shiftKey) return;
    event.preventDefault();
    if (canSend) send();
  }

  function onPaste(event: ClipboardEvent): void {
    if (event.clipboardData.files.length === 0) return;
    event.preventDefault();
    attachments.add(event.clipboardData.files);
  }

  return (
    <form
      className="@container rounded-2xl border border-line bg-panel p-2 shadow-sm focus-within:border-accent/60"
      onSubmit={(event) => {
        event.preventDefault();
        if (canSend) send();
      }}
    >
      <AttachmentList attachments={attachments} />
      <SkillList id="skills" choices={skills} />
      <textarea
        ref={area}
        id="message"
        rows={1}
        value={draft}
        aria-label={words.messageLabel}
        aria-autocomplete="list"
        aria-controls={skills.list.length > 0 ? "skills" : undefined}
        aria-activedescendant={skills.list.length > 0 ? `skills-${skills.marked}` : undefined}
        placeholder={words.messagePlaceholder}
        className="max-h-[40vh] w-full resize-none overflow-y-auto bg-transparent px-2 py-2 outline-none"
        onChange={(event) => setDraft(event.target.value)}
        onKeyDown={onKeyDown}
        onPaste={onPaste}
      />
      <div className="flex items-center gap-1.5">
        <AttachButton onFiles={attachments.add} />
        <ModeBar model={model} preferences={preferences} onChoose={onChoose} />
        <span className="flex-1" />
        <ModelPicker models={models} chosen={model?.name ?? null} onChoose={(name) => onChoose({ model: name })} />
        <SendButton isBusy={isBusy} isStopping={isStopping} isWaiting={isWaiting} canSend={canSend} onStop={onStop} />
      </div>
    </form>
  );
}
