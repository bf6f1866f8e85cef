/** The acceptance of the VCP runtime where it is one process, and where it is two that share a database server and blobs. */
import { homes, type RunningHome } from "../support/homes.ts";
import { describeVcpAcceptance, type VcpHome } from "./vcp-acceptance.ts";

const withPaths = (start: () => Promise<RunningHome>) => async (): Promise<VcpHome> => {
  const home = await start();
  let turn = 0;
  return {
    ...home,
    openPath(path, key) {
      const { socketUrls = [] } = home;
      turn += 1;
      return Promise.resolve({ url: `${socketUrls[turn % socketUrls.length] ?? ""}${path}`, key });
    },
  };
};

describeVcpAcceptance({
  "one process on a directory": withPaths(homes["one process on a directory"]),
  "two processes on a database server": withPaths(homes["two processes on a database server"]),
});
