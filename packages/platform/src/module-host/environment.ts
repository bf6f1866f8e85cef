/**
 * The one place of the module host that reads its process's environment, which is not the gateway's: PATH, HOME and
 * the like, as the runner of plugins set them, for the modules that it runs.
 */
export function environmentFor(own: Readonly<Record<string, string>>, home: string): Record<string, string> {
  const { PATH, LANG } = process.env;
  return { ...own, PATH: PATH ?? "", LANG: LANG ?? "C.UTF-8", HOME: home, TMPDIR: home };
}
