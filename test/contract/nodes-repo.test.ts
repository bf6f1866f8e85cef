import { twoInstancesOfFile, twoInstancesOfServer } from "../support/two-instances.ts";
import { describeNodeRepo } from "./nodes-repo.ts";

describeNodeRepo("file", twoInstancesOfFile);
describeNodeRepo("server", twoInstancesOfServer);
