import { memo } from "react";
import type { Message } from "../api/types.ts";
import { textOf } from "../run/messages.ts";
import { useWords } from "../text/index.ts";
import { FileChip } from "./FileChip.tsx";

/** What the person said, with the files they gave. */
export const SaidMessage = memo(function SaidMessage({ message }: { readonly message: Message }) {
  const words = useWords();
  const files = message.additional_kwargs?.files ?? [];
  const text = textOf(message);
  return (
    <article aria-label={words.you} className="flex flex-col items-end gap-2">
      {text && (
        <div className="max-w-[85%] rounded-2xl rounded-br-md bg-accent-soft px-4 py-2.5 whitespace-pre-wrap">{text}</div>
      )}
      {files.length > 0 && (
        <ul className="flex max-w-[85%] flex-wrap justify-end gap-2">
          {files.map((file) => (
            <li key={file.path || file.filename}>
              <FileChip path={file.path || file.filename} size={file.size} />
            </li>
          ))}
        </ul>
      )}
    </article>
  );
});
