/** What placeholders stand for besides variables: the values of plugins and nodes, results, descriptions of tools. */

/** A tool as prompts describe it. */
export interface ToolText {
  /** Stands as `{{VCP` and the name in prompts. */
  readonly name: string;
  readonly displayName: string;
  /** What it is for, in a line. */
  readonly summary: string;
  /** What its author counts it among. */
  readonly categories: readonly string[];
  /** How it is called. */
  readonly text: string;
}

/** Asked only where a conversation needs it. */
export interface PlaceholderSources {
  /** Of static plugins and nodes, by the placeholder with or without braces. */
  readonly staticValues: () => Promise<ReadonlyMap<string, string>>;
  /** What the result of a task comes to, or that it is still to come. */
  readonly asyncText: (plugin: string, taskId: string) => Promise<string>;
  /** Of the tools that may be called, in order. */
  readonly toolTexts: () => Promise<readonly ToolText[]>;
}
