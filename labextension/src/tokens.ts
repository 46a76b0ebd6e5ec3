import { Token } from '@lumino/coreutils';
import type { ISignal } from '@lumino/signaling';
import type { Widget } from '@lumino/widgets';

import type {
  ExecutedNotebook,
  FinishedCell,
  IClockSkew,
  NotebookJournal,
  RunningCell
} from './model/cells/cellRuns';
import type { ICluster } from './model/cluster/clusterModel';
import type { CellRun } from './model/cells/runTable';
import type { IKernelActivities } from './model/kernel/kernelActivity';
import type { IKernels } from './model/kernel/kernels';
import type { ActionTarget } from './model/memory/holders';
import type { IStatusMessage } from './model/memory/statusMessage';
import type { IPanelState } from './model/panelState';
import type { Part, Settings } from './model/settings/settings';
import type { ConnectionState } from './model/stream/connection';
import type { Fresh } from './model/freshness';
import type { IStreamModel, Outage, StreamData } from './model/stream/streamModel';
import type { Band } from './model/cells/band';
import type { ReceivedMessage } from './wire/wire';

/** The domain of this extension's translations. */
export const DOMAIN = 'jupyterlab_gpuwidget';

/** The user's settings. */
export interface IGpuSettings {
  readonly current: Settings;
  /** Emitted after `current` has changed. */
  readonly changed: ISignal<unknown, void>;
  /** Show a part of the user interface, or hide it. */
  togglePart(part: Part): Promise<void>;
}

export const IGpuSettings = new Token<IGpuSettings>('jupyterlab-gpuwidget:IGpuSettings');

/** The server's samples and the kernel of the active notebook. */
export interface IMonitor {
  /** The newest sample and the recent history, which may be old: `data` says whether they are current. */
  readonly model: IStreamModel;
  /** `model`, and whether the stream keeps it current. */
  readonly data: Fresh<StreamData, Outage>;
  /** The kernel of the active notebook. */
  readonly kernels: IKernels;
  /** What the kernels of all notebooks are doing. */
  readonly activities: IKernelActivities;
  /** Emitted when the server's data or the state of the connection may have changed. */
  readonly changed: ISignal<this, void>;
  /** Emitted for every message of the stream, before `changed`. */
  readonly received: ISignal<unknown, ReceivedMessage>;
  /** The state of the connection to the server. */
  readonly connectionState: ConnectionState;
  /** Set whether the panel is visible. While it is visible, the active notebook's kernel is polled. */
  setPanelVisible(visible: boolean): void;
  /** Set whether `user`, such as the alerts, needs samples while neither the panel nor a dashboard is visible. */
  setBackground(user: object, wanted: boolean): void;
  /** Return whether a view is visible, or someone other than `user` needs samples in the background. */
  hasOtherUsers(user: object): boolean;
  /** Set whether `dashboard` is visible. While it is visible, the hardware counters are read. */
  setDashboardVisible(dashboard: object, visible: boolean): void;
  /** Set how many seconds of history the model keeps. */
  setHistorySeconds(seconds: number): void;
  /** Set the minimum number of seconds between two samples. */
  setSampleInterval(seconds: number): void;
}

export const IMonitor = new Token<IMonitor>('jupyterlab-gpuwidget:IMonitor');

/** The newest snapshot of the cluster; null if no Prometheus is configured. */
export type IClusterModel = ICluster | null;

export const IClusterModel = new Token<IClusterModel>('jupyterlab-gpuwidget:IClusterModel');

/** The runs of the active notebook's cells, from the reports in its outputs, and the running cell. */
export interface ICellRuns {
  /** Emitted while a view is visible: when something may have changed, and every second while a cell runs. */
  readonly changed: ISignal<this, void>;
  /** Emitted when a cell of any open notebook has ended, whether a view is visible or not. */
  readonly finished: ISignal<this, FinishedCell>;
  /** Compares the kernel's clock with the server's. */
  readonly clockSkew: IClockSkew;
  /** Whether a notebook is open. */
  readonly hasNotebook: boolean;
  /** The runs in the notebook's order. The array is the same object until a run changes. */
  readonly runs: readonly CellRun[];
  /** Number of reports that were written by an incompatible version of gpuwidget. */
  readonly incompatible: number;
  /** Number of reports in the notebook. `runs` contains only the last ones if there are very many. */
  readonly reports: number;
  /** Emitted when a cell of any open notebook starts or ends, or the process of its kernel has ended. */
  readonly executed: ISignal<this, ExecutedNotebook>;
  /** The running cell, or null if no cell runs. */
  readonly running: RunningCell | null;
  /** What the journal of runs knows about the active notebook beyond its outputs; null if that is nothing. */
  readonly journal: NotebookJournal | null;
  /** Set `journal` if `notebook`, the widget of a notebook, is the active one. */
  setJournal(notebook: object, journal: NotebookJournal | null): void;
  /** Set whether `view` is visible. Outputs are read only while any view is visible. */
  setVisible(view: object, visible: boolean): void;
  /** Scroll to a cell of the active notebook and select the cell. */
  reveal(cellId: string): void;
  /** Return whether the active notebook's kernel can compare this run with another one. */
  comparable(run: CellRun): boolean;
  /** Compare two runs in a new cell below the active one. */
  compare(one: CellRun, other: CellRun): void;
  /**
   * Return the time ranges in which cells used this GPU, sorted by start; empty if the clocks of kernel and
   * server differ.
   */
  bands(uuid: string): readonly Band[];
}

export const ICellRuns = new Token<ICellRuns>('jupyterlab-gpuwidget:ICellRuns');

/** The place of a section in the panel. */
export interface SectionOptions {
  /** Sections are sorted by rank. The panel's own sections are in `views/panel/sections.ts`. */
  readonly rank: number;
  /** Whether the section is below everything that scrolls. */
  readonly below?: boolean;
}

/** The GPU panel in the sidebar. */
export interface IGpuPanel extends Widget {
  /** What the user has expanded, sorted and chosen in the panel. */
  readonly panelState: IPanelState;
  /** Add a section, usually a `PanelSection`. */
  addSection(section: Widget, options: SectionOptions): void;
  /** Focus the device dropdown. While the dropdown is disabled, focus the panel instead. */
  focusDevice(): void;
}

export const IGpuPanel = new Token<IGpuPanel>('jupyterlab-gpuwidget:IGpuPanel');

/** The actions on holders of GPU memory. */
export interface IHolderActions {
  /** The result of the last action. */
  readonly message: IStatusMessage;
  /** Open the menu of actions below a button. */
  openMenu(target: ActionTarget, button: HTMLElement): void;
  /** Activate the tab of a kernel or terminal; open it if it is closed. */
  goTo(target: ActionTarget): void;
  /** Shut down a kernel without a confirmation. */
  shutDownNow(kernel: string): void;
}

export const IHolderActions = new Token<IHolderActions>('jupyterlab-gpuwidget:IHolderActions');

/** The commands that this extension adds. */
export const CommandIds = {
  show: 'gpuwidget:show-panel',
  toggle: 'gpuwidget:toggle-panel',
  device: 'gpuwidget:choose-device',
  watch: 'gpuwidget:watch-cells',
  load: 'gpuwidget:load-in-kernel',
  dashboard: 'gpuwidget:open-dashboard',
  cluster: 'gpuwidget:open-cluster',
  doctor: 'gpuwidget:examine',
  parts: 'gpuwidget:show-parts',
  togglePart: 'gpuwidget:toggle-part'
} as const;

/** The commands for holders of GPU memory. */
export const HolderCommandIds = {
  goTo: 'gpuwidget:go-to-holder',
  interrupt: 'gpuwidget:interrupt-kernel',
  restart: 'gpuwidget:restart-kernel',
  freeCache: 'gpuwidget:free-cache',
  confirmShutDown: 'gpuwidget:shut-down-kernel'
} as const;
