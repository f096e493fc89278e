import { useId, type FormEvent } from "react";
import type { HumanInputField } from "../api/types.ts";
import { useWords } from "../text/index.ts";
import type { Reply } from "./QuestionCard.tsx";
import { QuestionField } from "./QuestionField.tsx";

interface Props {
  readonly fields: readonly HumanInputField[];
  readonly onReply: (reply: Reply) => void;
}

/** Several things asked at once. */
export function QuestionForm({ fields, onReply }: Props) {
  const words = useWords();
  const id = useId();

  function submit(event: FormEvent<HTMLFormElement>): void {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    const lines = fields
      .map((field) => ({ field, value: form.getAll(field.name).map(String).join(", ").trim() }))
      .filter(({ value }) => value !== "")
      .map(({ field, value }) => `${field.label ?? field.name}: ${value}`);
    if (lines.length > 0) onReply({ text: lines.join("\n") });
  }

  return (
    <form className="space-y-3" onSubmit={submit}>
      {fields.map((field) => (
        <div key={field.name} className="space-y-1">
          <label htmlFor={`${id}-${field.name}`} className="mr-2 text-sm">
            {field.label ?? field.name}
            {field.required && <span className="text-muted"> ({words.required})</span>}
          </label>
          <QuestionField id={`${id}-${field.name}`} field={field} />
        </div>
      ))}
      <button type="submit" className="rounded-lg bg-accent px-3 py-1.5 text-sm text-accent-ink">
        {words.send}
      </button>
    </form>
  );
}
