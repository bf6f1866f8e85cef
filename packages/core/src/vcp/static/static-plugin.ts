/** What is needed of a static plugin to fill its placeholders (VCP specification s. 3.3; VCP-20). */
export interface StaticPlugin {
  readonly name: string;
  readonly displayName: string;
  /** Names of placeholders, without braces. */
  readonly placeholders: readonly string[];
  /** Changes with everything that its value may depend on: definition, files, configuration. */
  readonly version: string;
}

/** In the table of values. */
export function pluginSource(name: string): string {
  return `plugin:${name}`;
}

export function nodeSource(name: string): string {
  return `node:${name}`;
}

/** `{{VCPWeatherInfo}}` and `VCPWeatherInfo` are one placeholder. */
export function withoutBraces(placeholder: string): string {
  const [, name = placeholder] = /^\{\{(.*)\}\}$/s.exec(placeholder.trim()) ?? [];
  return name.trim();
}
