/** Markdown as the model writes it: no raw HTML, no unsafe link, nothing loaded from elsewhere unasked. */

import { memo, useMemo } from "react";
import ReactMarkdown, { type Components } from "react-markdown";
import remarkGfm from "remark-gfm";
import { CodeBlock } from "./CodeBlock.tsx";
import { linkPaths } from "./linkPaths.ts";
import { MarkdownImage } from "./MarkdownImage.tsx";
import { MarkdownLink } from "./MarkdownLink.tsx";
import { MarkdownTable } from "./MarkdownTable.tsx";
import { fitHeadings, openAtBlocks, type Open } from "./outline.ts";
import { prepareMarkdown } from "./prepareMarkdown.ts";
import { splitBlocks } from "./splitBlocks.ts";
import { TaskMark } from "./TaskMark.tsx";

const COMPONENTS: Components = {
  a: ({ href, children }) => <MarkdownLink href={href}>{children}</MarkdownLink>,
  img: ({ src, alt }) => <MarkdownImage src={typeof src === "string" ? src : undefined} alt={alt ?? ""} />,
  pre: ({ children }) => <CodeBlock>{children}</CodeBlock>,
  table: ({ children }) => <MarkdownTable>{children}</MarkdownTable>,
  th: ({ children, style }) => (children ? <th style={style}>{children}</th> : <td style={style} />), // a name for nothing helps nobody
  input: ({ checked }) => <TaskMark isDone={checked === true} />,
};

/** Addresses are judged by the link and image components, which know the thread's own files. */
const keepAddress = (address: string): string => address;

interface BlockProps {
  readonly text: string;
  readonly level: number;
  readonly open: Open;
}

const Block = memo(
  function Block({ text, level, open }: BlockProps) {
    const plugins = useMemo(() => [remarkGfm, linkPaths, () => fitHeadings({ level, open })], [level, open]);
    return (
      <div className="markdown-block">
        <ReactMarkdown remarkPlugins={plugins} components={COMPONENTS} urlTransform={keepAddress}>
          {prepareMarkdown(text)}
        </ReactMarkdown>
      </div>
    );
  },
  (before, after) => before.text === after.text && before.level === after.level && before.open.join() === after.open.join(),
);

interface Props {
  readonly text: string;
  /** The level of its first heading in the page's outline. */
  readonly level?: number;
}

export const Markdown = memo(function Markdown({ text, level = 2 }: Props) {
  const blocks = useMemo(() => splitBlocks(text), [text]);
  const open = useMemo(() => openAtBlocks(blocks), [blocks]);
  return (
    <div className="markdown">
      {blocks.map((block, index) => (
        <Block key={index} text={block} level={level} open={open[index] ?? []} />
      ))}
    </div>
  );
});
