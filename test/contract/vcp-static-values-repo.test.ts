import { twoInstancesOfFile, twoInstancesOfServer } from "../support/two-instances.ts";
import { describeVcpStaticValueRepo } from "./vcp-static-values-repo.ts";

describeVcpStaticValueRepo("file", twoInstancesOfFile);
describeVcpStaticValueRepo("server", twoInstancesOfServer);
