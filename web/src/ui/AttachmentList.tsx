import { AttachmentChip } from "./AttachmentChip.tsx";
import type { Attachments } from "./useAttachments.ts";

/** The files that go with the next message, and what is wrong with them. */
export function AttachmentList({ attachments }: { readonly attachments: Attachments }) {
  const problems = [attachments.problem, ...attachments.list.map((entry) => entry.error)].filter((said) => said !== null);
  return (
    <>
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
    </>
  );
}
