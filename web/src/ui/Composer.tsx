import { ArrowUp, Bot, Brain, ListTodo, LoaderCircle, Paperclip, Square } from "lucide-react";
import { useEffect, useLayoutEffect, useRef, type ClipboardEvent, type KeyboardEvent } from "react";
import type { Model } from "../api/types.ts";
import { useWords } from "../text/index.ts";
import { AttachmentChip } from "./AttachmentChip.tsx";
import { IconButton } from "./IconButton.tsx";
import { ModelPicker } from "./ModelPicker.tsx";
import { ModeToggle } from "./ModeToggle.tsx";
import type { Choose, Preferences } from "./preferences.ts";
import type { Attachments } from "./useAttachments.ts";

interface Props {
  readonly isNew: boolean;
  readonly draft: string;
  readonly onDraft: (text: string) => void;
  readonly attachments: Attachments;
  readonly isBusy: boolean;
  readonly isStopping: boolean;
  /** The message goes out as soon as its files are up. */
  readonly isWaiting: boolean;
  readonly models: readonly Model[];
  readonly model: Model | null;
  readonly preferences: Preferences;
  readonly onChoose: Choose;
  readonly onSend: () => void;
  readonly onStop: () => void;
}

/** Where the person writes: text, files, model and modes. */
export function Composer(props: Props) {
  const { isNew, draft, onDraft, attachments, isBusy, isStopping, isWaiting, models, model, preferences, onChoose, onSend, onStop } = props;
  const words = useWords();
  const area = useRef<HTMLTextAreaElement>(null);
  const picker = useRef<HTMLInputElement>(null);
  const canSend = !isBusy && !isWaiting && (draft.trim() !== "" || attachments.list.some((entry) => !entry.error));

  const problems = [attachments.problem, ...attachments.list.map((entry) => entry.error)].filter((said) => said !== null);

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
    if (event.key !== "Enter" || event.shiftKey || isComposing) return;
    event.preventDefault();
    if (canSend) onSend();
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
        if (canSend) onSend();
      }}
    >
      {attachments.list.length > 0 && (
        <ul className="flex flex-wrap gap-2 p-1">
          {attachments.list.map((attachment) => (
            <li key={attachment.key}>
              <AttachmentChip attachment={attachment} onRemove={attachments.remove} />
            </li>
          ))}
        </ul>
      )}
      {problems.length > 0 && <p role="alert" className="px-2 py-1 text-sm whitespace-pre-line text-bad">{problems.join("\n")}</p>}
      <textarea
        ref={area}
        id="message"
        rows={1}
        value={draft}
        aria-label={words.messageLabel}
        placeholder={words.messagePlaceholder}
        className="max-h-[40vh] w-full resize-none overflow-y-auto bg-transparent px-2 py-2 outline-none placeholder:text-muted"
        onChange={(event) => onDraft(event.target.value)}
        onKeyDown={onKeyDown}
        onPaste={onPaste}
      />
      <div className="flex items-center gap-1.5">
        <IconButton label={words.attach} onClick={() => picker.current?.click()}>
          <Paperclip aria-hidden size={18} />
        </IconButton>
        <input
          ref={picker}
          type="file"
          multiple
          hidden
          aria-label={words.attach}
          onChange={(event) => {
            attachments.add([...(event.target.files ?? [])]);
            event.target.value = ""; // so that the same file can be chosen again
          }}
        />
        <ModeToggle
          icon={Brain}
          label={words.thinking}
          hint={model && !model.supports_thinking ? words.noThinking : words.thinkingHint}
          isOn={preferences.thinking && model?.supports_thinking !== false}
          isDisabled={model?.supports_thinking === false}
          onToggle={(thinking) => onChoose({ thinking })}
        />
        <ModeToggle icon={ListTodo} label={words.plan} hint={words.planHint} isOn={preferences.plan} onToggle={(plan) => onChoose({ plan })} />
        <ModeToggle icon={Bot} label={words.subagents} hint={words.subagentsHint} isOn={preferences.subagents} onToggle={(subagents) => onChoose({ subagents })} />
        <span className="flex-1" />
        <ModelPicker models={models} chosen={model?.name ?? null} onChoose={(name) => onChoose({ model: name })} />
        {isBusy ? (
          <button type="button" aria-label={words.stop} title={words.stop} disabled={isStopping} className="rounded-full bg-ink p-2.5 text-paper hover:opacity-85 disabled:opacity-40" onClick={onStop}>
            <Square aria-hidden size={14} fill="currentColor" />
          </button>
        ) : (
          <button type="submit" aria-label={words.send} title={words.send} disabled={!canSend} className="rounded-full bg-accent p-2 text-accent-ink hover:opacity-90 disabled:opacity-30">
            {isWaiting ? <LoaderCircle aria-hidden size={18} className="animate-spin" /> : <ArrowUp aria-hidden size={18} />}
          </button>
        )}
      </div>
    </form>
  );
}
