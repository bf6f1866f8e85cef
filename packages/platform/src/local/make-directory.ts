import { mkdir, stat } from "node:fs/promises";
import { dirname } from "node:path";

const attempts = 5;

/**
 * Makes a directory and those above it, for its owner alone, where it is not there yet. As `mkdir` does with `recursive`,
 * which tries without end where a directory may not be made below one that is there, as in /proc.
 * @throws the system's error
 */
export async function makeDirectory(path: string): Promise<void> {
  const above = dirname(path);
  for (let attempt = 1; ; attempt += 1) {
    try {
      await mkdir(path, { mode: 0o700 });
      return;
    } catch (cause) {
      const code = cause instanceof Error && "code" in cause ? cause.code : undefined;
      if (code === "EEXIST" && (await isDirectory(path))) return;
      // Others make and remove directories here, too.
      if ((code !== "EEXIST" && code !== "ENOENT") || above === path || attempt === attempts) throw cause;
      if (code === "ENOENT" && !(await isDirectory(above))) await makeDirectory(above);
    }
  }
}

async function isDirectory(path: string): Promise<boolean> {
  return stat(path).then(
    (found) => found.isDirectory(),
    () => false,
  );
}
